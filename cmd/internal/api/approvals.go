package api

import (
	"time"

	"space-job/notify/thread"
)

// Approval is a start that waits for a person's word, or has it.
type Approval struct {
	Request   string        `json:"request"` // its id
	State     string        `json:"state"`   // "pending", "approved" or "denied"
	Command   string        `json:"command"` // the shell string, or
	Argv      []string      `json:"argv"`    // what is run as it stands
	Until     bool          `json:"until"`   // the command is tried again and again, until it succeeds
	Cwd       string        `json:"cwd"`
	Env       []string      `json:"env"` // the names of the variables that are set for it
	Space     string        `json:"space"`
	By        thread.Author `json:"by"`  // who wants to start it
	Why       string        `json:"why"` // what asks for it
	At        time.Time     `json:"at"`
	ExpiresAt time.Time     `json:"expires_at"`
}

// ApprovalsResult are all requests that are not done with, oldest first.
type ApprovalsResult struct {
	Approvals []Approval `json:"approvals"`
	Warnings  []string   `json:"-"`
}

// Ways in which a person's word comes.
const (
	ViaTerminal = "terminal" // of the calling process
	ViaClient   = "client"   // a dialogue of the program that an agent runs in
)

// ApproveRequest is a person's word.
type ApproveRequest struct {
	ID   string
	Deny bool
	Rule bool          // from now on, too: it becomes a rule of the policy
	By   thread.Author // who says so, as far as it is known; never an agent
	Via  string        // ViaTerminal or ViaClient
}

// ApproveResult is what was decided.
type ApproveResult struct {
	Approval
	Rule     *int     `json:"rule"` // the number of the rule that was written, or null
	Warnings []string `json:"-"`
}

// PolicyRequest is a command to be judged, and not run.
type PolicyRequest struct {
	Command string   // a shell string, or
	Argv    []string // what is run as it stands
	Cwd     string   // "": here
	Env     []string // as in StartRequest
	Member  string   // who would run it: see Identity
}

// PolicyResult is the verdict on a command.
type PolicyResult struct {
	Verdict  string   `json:"verdict"` // "allow", "ask" or "deny"
	Rule     *int     `json:"rule"`    // the number of the rule, from 1; null: the default
	Why      string   `json:"why"`
	Warnings []string `json:"warnings"`
}

// Approvals lists what waits for a person's word, and what has it.
func (a *Actions) Approvals() (ApprovalsResult, error) {
	return ApprovalsResult{Approvals: []Approval{}}, nil
}

// Approval is one of them.
func (a *Actions) Approval(id string) (Approval, error) {
	return Approval{}, &Error{Code: NotFound, Message: "there is no request " + shown(id), Hint: "see which there are: space-job approvals"}
}

// Approve approves or denies a start that waits for it.
func (a *Actions) Approve(req ApproveRequest) (ApproveResult, error) {
	_, err := a.Approval(req.ID)
	return ApproveResult{}, err
}

// PolicyCheck judges a command as a start of it would be judged.
func (a *Actions) PolicyCheck(req PolicyRequest) (PolicyResult, error) {
	return PolicyResult{Verdict: "allow", Warnings: []string{}}, nil
}
