package api

import (
	"errors"
	"os"
	"syscall"
	"unsafe"

	"space-job/jobdir/record"
	"space-job/notify/thread"
)

// As are the same actions for one member, whoever the environment and the
// terminal name: "" is for nobody known. Who asks for another is refused.
func (a *Actions) As(member string) (*Actions, error) {
	var who thread.Author
	if member != "" {
		m, err := a.member("member", member)
		if err != nil {
			return nil, err
		}
		who = m
	}
	bound := *a
	bound.bound = &who
	return &bound, nil
}

// Identity is who asks: member if it is given, else $SPACE_MEMBER, else the
// login name as a person where there is a terminal. Otherwise nobody is known,
// and the Author is zero. A name that is not in the list is refused, the login
// name aside.
func (a *Actions) Identity(member string) (thread.Author, error) {
	if a.bound != nil {
		if member != "" && member != a.bound.Member {
			e := invalid("member", member, "is somebody else")
			e.Hint = "this connection acts for one member, and nothing that is said over it changes that"
			return thread.Author{}, e
		}
		if a.bound.Member == "" {
			return *a.bound, nil
		}
		return a.member("member", a.bound.Member) // it may have been removed, or be of another kind now
	}
	field := "member"
	if member == "" {
		member, field = os.Getenv(record.EnvMember), record.EnvMember
	}
	if member == "" {
		if !isTerminal(os.Stdin) && !isTerminal(os.Stderr) {
			return thread.Author{}, nil
		}
		if member = thread.LoginName(); member == "" {
			return thread.Author{}, nil
		}
	}
	return a.member(field, member)
}

// member is a member by name; field is what named it.
func (a *Actions) member(field, member string) (thread.Author, error) {
	m, err := a.thread().Member(member)
	if errors.Is(err, thread.ErrNoMember) {
		e := invalid(field, member, "is no member here")
		e.Hint = "see who is: space-job member list; or add one: space-job member add " + member + " --kind agent"
		return thread.Author{}, e
	}
	if err != nil {
		return thread.Author{}, fault(err)
	}
	return m.Author(), nil
}

// ParseMember checks the name of a member that is given as field, apart from
// whether there is one.
func ParseMember(field, s string) (string, error) { return s, fault(thread.CheckName(field, s)) }

// thread is the thread of the root.
func (a *Actions) thread() *thread.Thread { return a.entries.Again() }

func isTerminal(f *os.File) bool { return Columns(f) > 0 }

// Columns is how many columns a terminal has, 0 of what is none.
func Columns(f *os.File) int {
	var size struct{ rows, columns, x, y uint16 }
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	switch {
	case errno != 0:
		return 0
	case size.columns == 0: // a terminal that does not say
		return 80
	}
	return int(size.columns)
}
