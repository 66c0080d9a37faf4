package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"space-job/cmd/internal/api"
	"space-job/cmd/internal/link/carrier"
)

// Main serves one client on stdio, and exits: 0 when the client has hung up or
// the process was told to end, 1 where it cannot begin. Args are nothing, or
// --member and a name; space-job mcp has checked them.
func Main(args []string, version string) {
	if err := serveStdio(args, version); err != nil {
		fmt.Fprintln(os.Stderr, "space-job: error: "+err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

func serveStdio(args []string, version string) error {
	member := ""
	switch {
	case len(args) == 0:
	case len(args) == 2 && args[0] == "--member":
		member = args[1]
	default:
		return errors.New("mcp: unknown flag or operand: " + api.Quote(args[0]))
	}
	actions, err := api.Open()
	if err != nil {
		return err
	}
	actions.Carry(carrier.Do)
	s, err := New(actions, member, version, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	// Caught and not ignored, which what it starts would inherit: a client that does
	// not read any more ends no start in the middle.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ReapStarted()
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, os.Stdin, os.Stdout) }()
	select {
	case err = <-served:
	case <-s.end.leaving.Done():
		// A client that is there and does not read would hold this up for good.
		most := time.NewTimer(lastAnswers + time.Second)
		select {
		case err = <-served:
		case <-most.C:
		case <-s.end.over.Done():
			select {
			case err = <-served:
			case <-time.After(time.Second):
			}
		}
	}
	if err == nil || ctx.Err() != nil {
		return nil
	}
	for _, hungUp := range []error{io.EOF, io.ErrClosedPipe, syscall.EPIPE} {
		if errors.Is(err, hungUp) {
			return nil
		}
	}
	return err
}

// ReapStarted takes away the runners of the jobs that this process starts, from
// now on.
func ReapStarted() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		for range ended {
			api.Reap()
		}
	}()
}
