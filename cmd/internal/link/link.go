// Package link is how a Space takes part in the thread of another: what a link
// says, where it leads, and the calls that go there.
//
// # What is promised
//
// A child that has joined asks its parent one thing at a time: a [Request] is a
// [Call] and the token of one member, and has one [Answer]. All is decided in the
// parent, by its clock: the order of entries, whether a claim holds, hops, and the
// limit of wakes. The child decides nothing and believes what it is told.
//
// Whatever writes ([Post], [Claim], [Done], [Release], [Blocked], [JobEnd]) has a key that
// the child made before the first try. The parent does it once for a key, so that
// a call whose answer was lost is made again without harm; [Join] is repeated with
// the same token, [AnswerItem] with the same text.
//
// A call goes over HTTP, as the body of POST <address>/link with the token as
// bearer, or over an exec prefix: to the program behind it, "space-job link", which
// reads a [Request] in one line and writes the answer. A program that is to wait
// (follow_ms) stops when its caller goes: when the connection or its standard
// input is closed.
//
// Who follows the thread asks again and again. Over plain HTTP, where no proxy holds
// back what comes in pieces, one [Read] may be answered several times: see
// [ReadArgs]. A parent that does not know of that answers once, and a child that
// does not is answered once.
//
// A link says where the parent is and has a secret that works once. A letter of
// it that was changed is found: the link ends with a checksum.
//
// # What is not
//
// The token says who calls and is all that is needed to be that member of the
// thread; it opens nothing else, no job and no file. It goes over plain HTTP on
// loopback only.
//
// This package opens no connection, and package api, which makes and answers the
// calls, opens none: package carrier does.
package link

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"space-job/notify/thread"
)

// The calls. Each has the arguments and the result that stand beside it.
const (
	Join       = "join"       // JoinArgs: JoinResult; its token is what the link has
	Leave      = "leave"      // nothing: nothing
	Read       = "read"       // ReadArgs: api.ThreadResult
	Post       = "post"       // SayArgs with text, reply_to: api.PostResult
	Claim      = "claim"      // SayArgs with what, files, branch, until: the same
	Done       = "done"       // SayArgs with what, result, next: the same
	Release    = "release"    // SayArgs with what: the same
	Blocked    = "blocked"    // SayArgs with what, needs, from: the same
	AnswerItem = "answer"     // SayArgs with item, text: the same
	Claims     = "claims"     // nothing: api.ClaimsResult
	Members    = "members"    // nothing: the members, without how they are woken
	Inbox      = "inbox"      // InboxArgs: items
	Arrivals   = "arrivals"   // ArrivalsArgs: ArrivalsResult
	JobEnd     = "job_end"    // JobEndArgs: JobEndResult
	maxLinkLen = 4096         // of the text of a link
	scheme     = "space-job:" // of a link
	execScheme = "exec:"      // of an address
)

// Call is what a child asks of its parent.
type Call struct {
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
}

// Request is a call, where it goes and as whom.
type Request struct {
	Address string `json:"address"` // where it goes; "" to the program that answers it
	Token   string `json:"token"`
	Via     Via    `json:"via,omitzero"`
	Call
}

// Via is how a URL is reached, where that is said in the environment of who joins: a
// daemon that calls later does not have that.
type Via struct {
	Proxy    string `json:"proxy,omitempty"`     // a URL, perhaps with a password
	CertFile string `json:"cert_file,omitempty"` // $SSL_CERT_FILE and $SSL_CERT_DIR: more certificates to trust
	CertDir  string `json:"cert_dir,omitempty"`
}

// Answer is what a call comes to: a result or an error.
type Answer struct {
	Result   json.RawMessage `json:"result,omitempty"`
	Warnings []string        `json:"warnings,omitempty"`
	End      int64           `json:"end"` // the newest entry of the parent's thread
	Error    *Fault          `json:"error,omitempty"`

	// Parent is who does not know a token: see JoinResult.
	Parent string `json:"parent,omitempty"`

	// Via is how the carrier has brought a Join to where it goes.
	Via Via `json:"via,omitzero"`

	// Unanswered is said by a program that carries a call for another: there was
	// no answer, and the parent may (Sent) have done what it was asked for.
	Unanswered string `json:"unanswered,omitempty"`
	Sent       bool   `json:"sent,omitempty"`
	Late       bool   `json:"late,omitempty"` // for all the time that it may take
}

// Append adds the answer as JSON. What is in it is JSON already, and is not looked
// at again: many are told the same.
func (a *Answer) Append(b []byte) ([]byte, error) {
	if a.Error != nil || len(a.Warnings) > 0 || a.Unanswered != "" {
		j, err := json.Marshal(a)
		return append(b, j...), err
	}
	b = append(append(b, `{"result":`...), a.Result...)
	return append(strconv.AppendInt(append(b, `,"end":`...), a.End, 10), '}'), nil
}

// Unanswered is the answer of a call that had none.
func Unanswered(err error) Answer {
	var u *UnreachableError
	a := Answer{Unanswered: err.Error()}
	if errors.As(err, &u) {
		a.Sent, a.Late = u.Sent, u.Late
	}
	return a
}

// Fault is why a call failed, in the codes and words of package api.
type Fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint"`

	// Token says that the token opens nothing: whatever is asked for with it is
	// refused. Another one may open something.
	Token bool `json:"token,omitempty"`
}

// JoinArgs ask for a place in the thread.
type JoinArgs struct {
	Member  string `json:"member"`
	Token   string `json:"token"`    // made by the child: what it will call with, behind the id of the link
	SpaceID string `json:"space_id"` // of the child: the same for all its members
	Space   string `json:"space"`    // what the child would like to be called
}

// JoinResult is that place.
type JoinResult struct {
	Member string `json:"member"`
	Space  string `json:"space"`            // what the child is called in the parent
	Parent string `json:"parent,omitempty"` // what tells the parent from any other Space
}

// ReadArgs say which entries to read: see api.ThreadRequest.
type ReadArgs struct {
	After    *int64 `json:"after,omitempty"`
	Before   *int64 `json:"before,omitempty"`
	N        int64  `json:"n,omitempty"`
	FollowMS int64  `json:"follow_ms,omitempty"`

	// Stream, with After and FollowMS, is for what comes as it comes: one answer
	// after another, each in a line and behind the one before, until follow_ms are
	// over or one of them has no entry. A parent that does not know of it gives one.
	Stream bool `json:"stream,omitempty"`
}

// SayArgs are what is said. Which of them count depends on the call.
type SayArgs struct {
	Key     string   `json:"key"`             // it is said once for this key
	After   int64    `json:"after,omitempty"` // the newest entry that the child knew of before the first try
	Text    string   `json:"text,omitempty"`
	ReplyTo *int64   `json:"reply_to,omitempty"`
	Item    string   `json:"item,omitempty"`
	What    string   `json:"what,omitempty"`
	Files   []string `json:"files,omitempty"`
	Branch  string   `json:"branch,omitempty"`
	Until   string   `json:"until,omitempty"`
	Zone    *Zone    `json:"zone,omitempty"` // of a time of the day in Until; nil: the parent's
	Result  string   `json:"result,omitempty"`
	Next    string   `json:"next,omitempty"`
	Needs   string   `json:"needs,omitempty"`
	From    string   `json:"from,omitempty"`
}

// Zone is a time zone as it is at one time.
type Zone struct {
	Name string `json:"name"`
	East int    `json:"east"` // of UTC, in seconds
}

// InboxArgs are those of api.InboxRequest.
type InboxArgs struct {
	Take     bool  `json:"take,omitempty"`
	FollowMS int64 `json:"follow_ms,omitempty"`
}

// ArrivalsArgs wait for unread items that the child does not know of.
type ArrivalsArgs struct {
	Known    []string `json:"known"` // ids
	FollowMS int64    `json:"follow_ms"`
}

// ArrivalsResult are those, and by id all items that are not answered.
type ArrivalsResult struct {
	Items []thread.Item `json:"items"`
	Open  []string      `json:"open"`
}

// JobEndArgs are the message of a job of the child that has ended, and who is to
// have it. The parent posts it once for the Space and the job.
type JobEndArgs struct {
	Job      string   `json:"job"`
	In       string   `json:"in,omitempty"` // the Space that it ran in, as the child calls it; "": in the child
	Text     string   `json:"text"`
	State    string   `json:"state"`
	ExitCode *int     `json:"exit_code"`
	Offset   int64    `json:"offset"`
	Starter  string   `json:"starter,omitempty"` // a member that has joined from the child
	Wake     []string `json:"wake,omitempty"`
	Hops     int      `json:"hops,omitempty"` // those of the starter when it started the job
	After    int64    `json:"after,omitempty"`
}

// JobEndResult is what became of it.
type JobEndResult struct {
	Seq   int64           `json:"seq"`
	Items map[string]Told `json:"items"` // by member: the starter, and those that were to be woken
}

// Told is what became of telling one member.
type Told struct {
	Item         string `json:"item"` // "": Error says why there is none
	Wake         string `json:"wake"` // see thread.Wake
	Limit        string `json:"limit,omitempty"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
	Error        string `json:"error,omitempty"`
}

// Secret is a secret behind the id of the invitation that it belongs to: that of
// a link, and later the token of who joined by it.
func Secret(id, secret string) string { return id + "." + secret }

// SplitSecret is the inverse of Secret. It reports false of what is none.
func SplitSecret(s string) (id, secret string, ok bool) {
	id, secret, ok = strings.Cut(s, ".")
	return id, secret, ok && hexOnly(id, 16) && hexOnly(secret, 48)
}

// SplitToken is the id and the secret of what is known to be one.
func SplitToken(token string) (id, secret string) {
	id, secret, _ = SplitSecret(token)
	return id, secret
}

func hexOnly(s string, n int) bool { return len(s) == n && strings.Trim(s, "0123456789abcdef") == "" }

// Link is an invitation: where to join, and a secret that works once.
type Link struct {
	Address string // see ParseAddress
	Secret  string // see Secret
}

// String is the text of a link: one line without a blank.
//
//	space-job:http://127.0.0.1:7411#<id>.<secret>.<checksum>
//	space-job:exec:<the prefix as a JSON list, base64url>#<id>.<secret>.<checksum>
func (l Link) String() string {
	s := scheme + l.Address + "#" + l.Secret
	return s + "." + checksum(s)
}

// checksum finds every change within 32 bits that follow one another.
func checksum(s string) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(s))) }

// ErrDamaged is the error of a link that is not as it was printed.
var ErrDamaged = errors.New("is damaged: a letter of it is missing, added or changed")

// IsLink reports whether a text begins as a link does.
func IsLink(s string) bool { return strings.HasPrefix(s, scheme) }

// Parse reads a link. What is none, or was changed, is ErrDamaged; an address
// that leads nowhere is the error of ParseAddress.
func Parse(s string) (Link, error) {
	s = strings.TrimSpace(s)
	at := strings.LastIndexByte(s, '.')
	if at < 0 || len(s) > maxLinkLen || checksum(s[:at]) != s[at+1:] {
		return Link{}, ErrDamaged
	}
	rest, ok := strings.CutPrefix(s[:at], scheme)
	address, secret, hasSecret := strings.Cut(rest, "#")
	if _, _, isSecret := SplitSecret(secret); !ok || !hasSecret || !isSecret {
		return Link{}, ErrDamaged
	}
	l := Link{address, secret}
	_, err := ParseAddress(address)
	return l, err
}

// Address is where a parent is: a URL or a prefix, one of them.
type Address struct {
	URL  string   // of http or https, without a slash at the end
	Exec []string // a program and its arguments, in front of what is to be run over there
}

// ParseAddress reads an address: https://..., http://... on loopback, or exec: and
// a JSON list, as it is or in base64url.
func ParseAddress(s string) (Address, error) {
	if list, ok := strings.CutPrefix(s, execScheme); ok {
		b := []byte(list)
		if !strings.HasPrefix(list, "[") {
			var err error
			if b, err = base64.RawURLEncoding.DecodeString(list); err != nil {
				return Address{}, errors.New(`is no prefix: exec:["ssh","box"] is one`)
			}
		}
		var a Address
		if err := json.Unmarshal(b, &a.Exec); err != nil || len(a.Exec) == 0 || a.Exec[0] == "" {
			return Address{}, errors.New(`is no prefix: exec:["ssh","box"] is one`)
		}
		for _, arg := range a.Exec {
			if strings.IndexByte(arg, 0) >= 0 {
				return Address{}, errors.New("holds a NUL byte")
			}
		}
		return a, nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return Address{}, errors.New("is no address: https://HOST[:PORT], http://127.0.0.1:PORT or exec:[\"ssh\",\"box\"]")
	case u.Port() != "" && !isPort(u.Port()):
		return Address{}, errors.New("has no port within 1..65535")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return Address{}, errors.New("has more than a scheme, a host, a port and a path")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return Address{}, errors.New("is plain http to another machine, where anybody on the way could read the token: use https or an exec prefix")
	}
	return Address{URL: strings.TrimRight(u.String(), "/")}, nil
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// loopback: a name other than localhost may lead anywhere.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// String is the address as it stands in a link.
func (a Address) String() string {
	if a.Exec == nil {
		return a.URL
	}
	b, err := json.Marshal(a.Exec)
	if err != nil {
		panic(err) // strings
	}
	return execScheme + base64.RawURLEncoding.EncodeToString(b)
}

// Show is the address for people.
func (a Address) Show() string {
	if a.Exec == nil {
		return a.URL
	}
	return strings.Join(a.Exec, " ")
}

// UnreachableError is the error of a call that has no answer.
type UnreachableError struct {
	Sent bool // the parent may have done what it was asked for
	Late bool // all the time that it may take has passed
	Err  error
}

func (e *UnreachableError) Error() string { return e.Err.Error() }
func (e *UnreachableError) Unwrap() error { return e.Err }
