package cli

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

type logsOptions struct {
	req    api.LogsRequest
	offset int64
	follow bool
	fs     *pflag.FlagSet
}

func logsCommand() *command {
	return &command{
		name:    "logs",
		usage:   []string{"logs [ID] [flags]"},
		summary: "read the log of a job, from any byte",
		about: []string{
			"Prints what a job wrote, stdout and stderr together, byte for byte. Without ID it is the newest job. Without --offset it is the end of the log: the last 8 KiB, from the start of a line.",
			"Offsets are bytes. With --json you get next_offset: pass it as the next --offset, and nothing is lost or repeated. You are through when more is false and state is not running.",
			"--follow-ms waits, for at most so long, for a byte after --offset (without one: for output from now on) or for the end of the job. -f goes on to the end of the job, exits with 0, and says on stderr if the job was lost, cancelled or timed out; wait exits with the code of the job.",
			"With --json, and with --encoding utf-8, what you get is UTF-8 for reading: bytes that are none become U+FFFD, while offsets keep counting the bytes of the log. To have such bytes exactly, use --encoding base64: with --json, too, they are then in the field text.",
			"The document of --json: job, state, exit_code, signal, error (of the end, null before), offset, next_offset, more, text, encoding, size, dropped (what was cut out of the log just before the text), unwritten (bytes and error of output that could not be written, as on a full disk), truncated (the offset is past the end, because somebody cut the log).",
		},
		examples: []example{
			{"space-job logs", "the end of the newest job's log"},
			{"space-job logs -f 9d3e", "follow a job to its end, by the end of its id"},
			{"space-job logs 9d3e --offset 0 -f >all", "the whole log"},
			{"space-job logs 9d3e --json --offset 4096 --follow-ms 25000", "what came after byte 4096, or what comes next"},
		},
		exits:   append(standardExits[:len(standardExits):len(standardExits)], exit{"130", "you stopped -f with Ctrl-C; the job goes on"}),
		operand: operandJob,
		most:    1,
		reach:   answering,
		new:     func() options { return new(logsOptions) },
	}
}

func (o *logsOptions) AddFlags(fs *pflag.FlagSet) {
	o.fs = fs
	r := &o.req
	fs.Var(number(&o.offset, "offset", api.ParseInt), "offset", "read from this byte on")
	fs.Var(number(&r.Max, "max", api.ParseCount), "max", "read at most so many bytes, 65536 unless said, up to 1048576")
	fs.Var(number(&r.FollowMS, "follow_ms", api.ParseInt), "follow-ms", "wait for output or the end, up to 25000 milliseconds")
	fs.BoolVarP(&o.follow, "follow", "f", false, "go on to the end of the job")
	fs.BoolVar(&r.Plain, "plain", false, "drop escapes, and show redrawn lines as they were left")
	fs.Var(parsed(&r.Encoding, "ENCODING", func(s string) (api.Encoding, error) {
		return api.Encoding(s), nil
	}), "encoding", "base64: exact bytes, also in JSON; utf-8: text")
}

func (o *logsOptions) Run(s *session, args []string) (int, error) {
	if len(args) > 0 {
		if o.req.Job = args[0]; args[0] == "" {
			return 0, usage(`job: "" is no id`, "logs")
		}
	}
	if o.fs.Changed("offset") {
		o.req.Offset = &o.offset
	}
	switch given := o.fs.Changed("encoding"); {
	case given && o.req.Encoding != api.Text && o.req.Encoding != api.Base64:
		return 0, usage("encoding: "+quote(string(o.req.Encoding))+" is neither utf-8 nor base64", "logs")
	case !given && !s.json:
		o.req.Encoding = api.Raw
	}
	if o.follow && (o.req.FollowMS != 0 || o.req.Max != 0) {
		return 0, usage("-f goes on to the end: --follow-ms and --max have no part in it", "logs")
	}
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	if o.follow {
		ctx, stop := interruptible()
		defer stop()
		var last api.LogsResult
		err := a.Follow(ctx, o.req, func(r *api.LogsResult) error {
			last = *r
			s.piece(r)
			return s.broken
		})
		interrupted := errors.Is(err, context.Canceled)
		if s.broken != nil || err != nil && !interrupted {
			return 0, err // what is broken is said by the caller
		}
		s.unwritten(&last)
		if interrupted {
			job := o.req.Job
			if last.Job != "" {
				job = string(last.Job)
			}
			s.say("hint", strings.TrimSpace("the job goes on: "+s.self()+" logs -f "+job))
			return exitDetached, nil
		}
		if last.State != "exited" && !s.json {
			s.ended(&api.Entry{Job: last.Job, State: last.State, Signal: last.Signal, Error: last.Error})
		}
		return exitOK, nil
	}
	res, err := a.Logs(context.Background(), o.req)
	if err != nil {
		return 0, err
	}
	s.piece(&res)
	s.unwritten(&res)
	if !s.json && res.More {
		s.say("hint", "more: "+strconv.FormatInt(res.Size-res.NextOffset, 10)+" bytes follow: "+s.self()+" logs "+string(res.Job)+" --offset "+strconv.FormatInt(res.NextOffset, 10)+" (-f: all)")
	}
	return exitOK, nil
}

// unwritten says to whom reads the log as it is that it does not have all.
func (s *session) unwritten(r *api.LogsResult) {
	if r.Unwritten != nil && !s.json {
		s.say("warning", r.Unwritten.Warning())
	}
}

// piece prints a piece of a log. What a person sees has a gap where bytes are
// missing, so it is said.
func (s *session) piece(r *api.LogsResult) {
	if s.json {
		s.document(r)
		return
	}
	if d := r.Dropped; d != nil {
		s.say("warning", strconv.FormatInt(d.To-d.From, 10)+" bytes are missing here, "+strconv.FormatInt(d.From, 10)+" to "+strconv.FormatInt(d.To, 10)+": cut out of the log")
	}
	if r.Truncated {
		s.say("warning", "the log was cut: it has "+strconv.FormatInt(r.Size, 10)+" bytes now")
	}
	switch r.Encoding {
	case api.Raw:
		s.write(r.Bytes)
	case api.Base64:
		if r.Text != "" {
			s.print(r.Text + "\n")
		}
	default:
		s.print(r.Text)
	}
}
