package until

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// checkTimes are the times of a watch of a pull request.
type checkTimes struct {
	soon, slow time.Duration // between two looks, growing
	try        time.Duration // the most that one call of gh may take
	grace      time.Duration // how long nothing required may be reported before there is nothing
	limited    time.Duration // after a refusal that does not say until when
	longest    time.Duration // the longest that one is believed to last
}

var defaultCheckTimes = checkTimes{
	soon: 10 * time.Second, slow: time.Minute,
	try: 30 * time.Second, grace: time.Minute,
	limited: time.Minute, longest: 2 * time.Hour,
}

// pullRequest waits until the required checks of a pull request have finished.
func (w *watcher) pullRequest(ctx context.Context) (End, error) {
	pr, err := ParsePullRequest(w.PRChecks)
	if err != nil {
		return never("%v", err)
	}
	path, err := w.gh()
	if err != nil {
		return never("gh cannot be run, and checks are read through it: %s", innermost(err))
	}
	g := github{w: w, gh: path, pr: pr}
	var wait pause
	var head string
	var none time.Time // since when nothing required has been reported
	delay := w.checks.soon
	for {
		l := g.look(ctx)
		if ctx.Err() != nil {
			return End{}, ctx.Err()
		}
		if l.head != "" {
			if head != "" && head != l.head {
				w.log.say("the head has moved from " + shortOid(head) + " to " + shortOid(l.head))
				none, delay = time.Time{}, w.checks.soon
			}
			head = l.head
		}
		next := delay
		switch l.stand {
		case standNever:
			return End{CodeNever, l.what}, nil
		case standPassed:
			return End{CodeHolds, "all required checks of " + w.PRChecks + " have passed: " + l.what}, nil
		case standFailed:
			return End{CodeNot, "the required checks of " + w.PRChecks + " have finished, and not all have passed: " + l.what}, nil
		case standNone:
			if none.IsZero() {
				none = time.Now()
			}
			left := w.checks.grace - time.Since(none)
			if left <= 0 {
				return End{CodeNone, "no check is required for " + w.PRChecks + ": " + l.what}, nil
			}
			w.log.see(l.what + "; perhaps not yet")
			next = min(delay, left)
		case standPending:
			none = time.Time{}
			w.log.see(l.what)
		case standTrouble:
			w.log.see("asking again: " + l.what)
			next = max(delay, l.after)
		}
		if err := wait.wait(ctx, next); err != nil {
			return End{}, err
		}
		delay = min(delay*3/2, w.checks.slow)
	}
}

func shortOid(s string) string { return oneLine(s, 12) }

// stand is how the required checks stand.
type stand int

const (
	standTrouble stand = iota // it could not be found out this time
	standNever                // it can never be found out
	standNone                 // none is reported
	standPending
	standPassed
	standFailed
)

// sighting is what one look at a pull request found.
type sighting struct {
	stand stand
	what  string
	after time.Duration // trouble: not to be asked again before
	head  string        // the commit, "" where that is not known
}

type github struct {
	w  *watcher
	gh string
	pr PullRequest

	asked string   // the branch whose rules were asked for
	names []string // of the checks that they demand
	mute  int      // looks in a row that ended without an answer to all that was asked
}

// maxMute looks are repeated for an answer that is missing: the network may have
// failed. Then what there is has to do, as some servers have no other.
const maxMute = 2

// ends reports whether a watch that sees this comes to its end.
func (s *sighting) ends() bool {
	return s.stand == standPassed || s.stand == standFailed || s.stand == standNone
}

// look finds out how the checks stand. What gh pr checks prints is the base;
// what it cannot say is asked for beside it: which run of a check is the
// newest, which commit is the head, whether the request is still open. Where
// that is not answered, the base stands.
func (g *github) look(ctx context.Context) sighting {
	r, out := g.call(ctx, "pr", "checks", strconv.Itoa(g.pr.Number), "-R", g.pr.Owner+"/"+g.pr.Repo, "--required")
	s := readChecks(r, out)
	if ctx.Err() != nil {
		return s
	}
	if s.stand == standTrouble {
		if r.late {
			s.what = "gh did not answer within " + g.w.checks.try.String()
		}
		if isRefusal(r.tail.String()) {
			s.after = g.refused(ctx)
			s.what += "; waiting " + s.after.Round(time.Second).String()
		}
		return s
	}
	if s.stand == standNever {
		return s
	}
	d, whole := g.details(ctx)
	if whole {
		s = combine(s, d)
		if s.ends() {
			var names []string
			names, whole = g.demanded(ctx, d.base)
			if missing := d.missing(names); len(missing) > 0 {
				s.stand = standPending
				s.what += ", not reported yet: " + some(missing)
			}
		}
	}
	if whole || !s.ends() {
		g.mute = 0
		return s
	}
	if g.mute >= maxMute {
		return s
	}
	g.mute++
	s.stand, s.what = standTrouble, s.what+", and gh had no answer to what else counts"
	return s
}

// demanded is the names of the checks that the rules of a branch demand, as far
// as they may be read: some are reported only when others have finished. It is
// asked for once, when all that are reported have, or none is. It reports false
// where an answer may come another time.
func (g *github) demanded(ctx context.Context, branch string) (names []string, whole bool) {
	if branch == "" || g.asked == branch {
		return g.names, true
	}
	g.asked, g.names = branch, nil
	repo, at := "repos/"+g.pr.Owner+"/"+g.pr.Repo+"/", "branches/"+url.PathEscape(branch)
	for _, q := range [...]struct{ path, fields string }{
		{repo + at, ".protection.required_status_checks.contexts[]?"},
		{repo + "rules/" + at, `.[]|select(.type=="required_status_checks")|.parameters.required_status_checks[]?.context`},
	} {
		r, out := g.call(ctx, "api", q.path, "--jq", q.fields)
		if r.err != nil || r.late || r.code != 0 {
			if said := r.tail.String(); !strings.Contains(said, "HTTP 404") && (!strings.Contains(said, "HTTP 403") || strings.Contains(said, "rate limit")) {
				g.asked = "" // else it is not there, or not for this user
			}
			continue
		}
		for name := range strings.Lines(out) {
			if name = strings.TrimSpace(name); name != "" && !slices.Contains(g.names, name) {
				g.names = append(g.names, name)
			}
		}
	}
	return g.names, g.asked == branch
}

// missing is those of the names that no check is reported for.
func (d *details) missing(names []string) (missing []string) {
	for _, n := range names {
		if !slices.Contains(d.names, n) {
			missing = append(missing, n)
		}
	}
	return missing
}

// combine is what gh printed with what it could not say.
func combine(s sighting, d details) sighting {
	s.head = d.head
	switch {
	case d.required() == 0 && d.all == 0 && (s.stand == standPassed || s.stand == standFailed):
		// Nothing is reported for the commit that is the head by now.
		s.stand, s.what = standPending, "no checks are reported for the new head yet"
	case d.required() > 0:
		// It was asked later, and knows which run is the newest.
		s.stand, s.what = d.verdict()
	}
	if d.closed && (s.stand == standPending || s.stand == standNone) {
		s.stand, s.what = standNever, "the pull request is closed, and its required checks have not finished"
	}
	return s
}

// call runs gh. What it writes to stdout is returned, its stderr is in the
// tail.
func (g *github) call(ctx context.Context, args ...string) (*try, string) {
	r := &try{tail: output{most: 8 << 10}, out: output{most: 4 << 20}}
	g.w.runInto(ctx, r, g.w.checks.try, nil, &r.out, &r.tail, ghEnvironment(g.w.environ()), append([]string{g.gh}, args...)...)
	return r, r.out.String()
}

// ghEnvironment is the environment of gh: that of a program that reads what it
// prints, whatever the user has set for themselves.
func ghEnvironment(environ []string) []string {
	env := slices.DeleteFunc(environ, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "GH_FORCE_TTY", "GH_DEBUG", "DEBUG", "CLICOLOR_FORCE":
			return true
		}
		return false
	})
	return append(env, "GH_PROMPT_DISABLED=1", "GH_NO_UPDATE_NOTIFIER=1", "NO_COLOR=1", "GH_PAGER=cat")
}

// check is a line of gh pr checks.
type check struct{ name, state string }

// Lines of gh pr checks say one of these words about a check.
var buckets = map[string]stand{
	"pass": standPassed, "skipping": standPassed,
	"fail": standFailed, "cancel": standFailed,
	"pending": standPending,
}

// parseChecks reads the lines that gh pr checks prints where it does not print
// to a terminal: name, state, elapsed, link and perhaps more, with tabs
// between. A state that is not known is none that has finished.
func parseChecks(out string) (checks []check) {
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimRight(line, "\r\n"), "\t")
		if len(fields) < 2 {
			continue
		}
		at := 1
		for i := 1; i < len(fields); i++ { // a name that holds a tab
			if _, ok := buckets[fields[i]]; ok {
				at = i
				break
			}
		}
		checks = append(checks, check{strings.Join(fields[:at], " "), fields[at]})
	}
	return checks
}

// judge is how checks stand together.
func judge(checks []check) (stand, string) {
	by := map[stand][]string{}
	for _, c := range checks {
		s, ok := buckets[c.state]
		if !ok {
			s = standPending
		}
		by[s] = append(by[s], c.name)
	}
	passed := strconv.Itoa(len(by[standPassed])) + " of " + strconv.Itoa(len(checks)) + " passed"
	if names := by[standFailed]; len(names) > 0 {
		passed += ", " + strconv.Itoa(len(names)) + " failed (" + some(names) + ")"
	}
	if names := by[standPending]; len(names) > 0 {
		return standPending, passed + ", " + strconv.Itoa(len(names)) + " pending (" + some(names) + ")"
	}
	if len(by[standFailed]) > 0 {
		return standFailed, passed
	}
	return standPassed, passed
}

// some names a few.
func some(names []string) string {
	const most = 5
	var b strings.Builder
	for i, n := range names {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(names)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(oneLine(n, 60))
	}
	return b.String()
}

// readChecks understands one run of gh pr checks. Its exit code decides
// nothing, as it differs between versions: lines are checks, and only where
// there is none its words count, which come on the other output. A check can
// have any name.
func readChecks(r *try, out string) sighting {
	if r.late || r.err != nil {
		what := "gh could not be run"
		if r.err != nil {
			what += ": " + innermost(r.err)
		}
		return sighting{stand: standTrouble, what: what}
	}
	if checks := parseChecks(out); len(checks) > 0 {
		var s sighting
		s.stand, s.what = judge(checks)
		return s
	}
	return readWords(r)
}

// Beginnings of what gh says where it prints no check.
var words = [...]struct {
	begins string
	stand  stand
	what   string
}{
	{"no checks reported on the '", standNone, "no checks are reported"},
	{"no required checks reported on the '", standNone, "no required checks are reported"},
	{"no commit found on the pull request", standNone, "the pull request has no commit"},
	{"GraphQL: Could not resolve to a PullRequest", standNever, "there is no such pull request"},
	{"GraphQL: Could not resolve to a Repository", standNever, "there is no such repository, or gh may not see it"},
	{"no pull requests found for", standNever, "there is no such pull request"},
	{"HTTP 404", standNever, "there is no such pull request, or gh may not see it"},
	{"HTTP 401", standNever, "gh is not signed in: gh auth login"},
	{"unknown flag", standNever, "this gh is too old: 2.23 or newer is needed"},
	{"unknown command", standNever, "this gh is too old: 2.23 or newer is needed"},
}

const exitNotSignedIn = 4

func readWords(r *try) sighting {
	said := r.tail.String()
	first := ""
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		for _, w := range words {
			if strings.HasPrefix(line, w.begins) {
				return sighting{stand: w.stand, what: withWords(w.stand, w.what, line)}
			}
		}
		if first == "" {
			first = line
		}
	}
	switch {
	case r.code == exitNotSignedIn || strings.Contains(said, "gh auth login"):
		return sighting{stand: standNever, what: "gh is not signed in: gh auth login"}
	case strings.HasPrefix(first, "HTTP 403") && (strings.Contains(first, "not accessible by") || strings.Contains(first, "SAML")):
		return sighting{stand: standNever, what: withWords(standNever, "gh may not read the checks", first)}
	case first == "" && r.code == 0:
		return sighting{stand: standTrouble, what: "gh said nothing"}
	case first == "":
		return sighting{stand: standTrouble, what: "gh failed: " + r.how()}
	}
	return sighting{stand: standTrouble, what: "gh failed: " + oneLine(withoutPort(first), 200)}
}

// withoutPort leaves out our own end of a connection in what Go says of it, as
// in "read tcp 10.0.0.7:38468->10.0.0.1:443: read: connection reset by peer": it
// is another one each time.
func withoutPort(s string) string {
	ours, theirs, ok := strings.Cut(s, "->")
	if i := strings.LastIndexByte(ours, ' '); ok && i >= 0 && strings.Contains(ours[i:], ":") {
		return ours[:i+1] + theirs
	}
	return s
}

// withWords adds what gh said to an end.
func withWords(s stand, what, line string) string {
	if s == standNever {
		what += " (gh: " + oneLine(line, 200) + ")"
	}
	return what
}

// isRefusal reports whether gh was told to ask less often.
func isRefusal(said string) bool {
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "HTTP 403") || strings.HasPrefix(line, "HTTP 429") ||
			strings.HasPrefix(line, "GraphQL: API rate limit") || strings.HasPrefix(line, "GraphQL: You have exceeded a secondary rate limit") {
			return true
		}
	}
	return false
}

// refused finds out how long to wait after a refusal: gh pr checks does not
// show the answer's head, in which that stands.
func (g *github) refused(ctx context.Context) time.Duration {
	_, out := g.call(ctx, "api", "graphql", "--include", "-f", "query=query{viewer{login}}")
	after, ok := waitFor(out, time.Now())
	if !ok {
		after = g.w.checks.limited
	}
	return min(after, g.w.checks.longest)
}

// waitFor reads the head of a refusal: how long not to ask again. A head that
// is no refusal means no wait.
func waitFor(out string, now time.Time) (time.Duration, bool) {
	lines := strings.Split(out, "\n")
	status := strings.Fields(lines[0])
	if len(status) < 2 || !strings.HasPrefix(status[0], "HTTP/") {
		return 0, false
	}
	if status[1] == "200" && !strings.Contains(out, "RATE_LIMITED") {
		return 0, true
	}
	remaining, reset := "", time.Time{}
	for _, line := range lines[1:] {
		line = strings.TrimSpace(line)
		if line == "" {
			break
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.ToLower(name) {
		case "retry-after":
			if n, err := strconv.ParseInt(value, 10, 32); err == nil && n >= 0 {
				return time.Duration(n) * time.Second, true
			}
		case "x-ratelimit-remaining":
			remaining = value
		case "x-ratelimit-reset":
			if n, err := strconv.ParseInt(value, 10, 64); err == nil && n > 0 {
				reset = time.Unix(n, 0)
			}
		case "date": // by their clock, not ours
			if at, err := time.Parse(time.RFC1123, value); err == nil {
				now = at
			}
		}
	}
	if !reset.IsZero() && (remaining == "" || remaining == "0") {
		return max(reset.Sub(now), 0) + time.Second, true // the second is over only after it
	}
	return 0, false
}

// details are what gh pr checks does not print.
type details struct {
	head   string
	base   string // the branch that it is to be merged into
	closed bool   // and not merged
	all    int    // contexts that are reported
	names  []string
	checks []check // the required ones
}

func (d *details) required() int            { return len(d.checks) }
func (d *details) verdict() (stand, string) { return judge(d.checks) }

const detailsQuery = `query($owner:String!,$repo:String!,$number:Int!,$after:String){repository(owner:$owner,name:$repo){pullRequest(number:$number){state headRefOid baseRefName commits(last:1){nodes{commit{oid statusCheckRollup{contexts(first:100,after:$after){pageInfo{hasNextPage endCursor}nodes{__typename ...on StatusContext{context state createdAt isRequired(pullRequestNumber:$number)}...on CheckRun{databaseId name status conclusion startedAt isRequired(pullRequestNumber:$number)checkSuite{workflowRun{event workflow{name}}}}}}}}}}}}}`

// reported is one context: a check run, or a status.
type reported struct {
	Type       string `json:"__typename"`
	IsRequired *bool

	Context   string // of a status
	State     string
	CreatedAt time.Time

	DatabaseID int64 // of a check run
	Name       string
	Status     string
	Conclusion string
	StartedAt  time.Time
	CheckSuite struct {
		WorkflowRun *struct {
			Event    string
			Workflow struct{ Name string }
		}
	}
}

type detailsAnswer struct {
	Data struct {
		Repository *struct {
			PullRequest *struct {
				State       string
				HeadRefOid  string
				BaseRefName string
				Commits     *struct {
					Nodes []struct {
						Commit struct {
							Oid               string
							StatusCheckRollup *struct {
								Contexts struct {
									PageInfo struct {
										HasNextPage bool
										EndCursor   string
									}
									Nodes []reported
								}
							}
						}
					}
				}
			}
		}
	}
	Errors []struct{ Type, Message string }
}

// maxPages of a hundred contexts each are read.
const maxPages = 20

// details asks for what gh pr checks does not print. It reports false where
// there is no full answer.
func (g *github) details(ctx context.Context) (details, bool) {
	var d details
	var all []reported
	after := ""
	for range maxPages {
		args := []string{"api", "graphql", "-f", "query=" + detailsQuery, "-f", "owner=" + g.pr.Owner, "-f", "repo=" + g.pr.Repo, "-F", "number=" + strconv.Itoa(g.pr.Number)}
		if after != "" {
			args = append(args, "-f", "after="+after)
		}
		_, out := g.call(ctx, args...)
		nodes, next, ok := d.page(out)
		if !ok {
			return d, false
		}
		all = append(all, nodes...)
		if after = next; after == "" {
			break
		}
	}
	d.all = len(all)
	for i := range all {
		d.names = append(d.names, strings.TrimSpace(cmp.Or(all[i].Name, all[i].Context)))
	}
	d.checks = newestOf(all)
	return d, after == ""
}

// page reads one answer.
func (d *details) page(out string) (nodes []reported, next string, ok bool) {
	var a detailsAnswer
	if json.Unmarshal([]byte(out), &a) != nil || a.Data.Repository == nil || a.Data.Repository.PullRequest == nil {
		return nil, "", false
	}
	pr := a.Data.Repository.PullRequest
	if pr.State == "" || pr.Commits == nil || len(pr.Commits.Nodes) == 0 {
		return nil, "", false
	}
	commit := pr.Commits.Nodes[0].Commit
	d.head, d.base, d.closed = cmp.Or(commit.Oid, pr.HeadRefOid), pr.BaseRefName, pr.State == "CLOSED"
	if commit.StatusCheckRollup == nil {
		return nil, "", true
	}
	c := commit.StatusCheckRollup.Contexts
	for i := range c.Nodes {
		if c.Nodes[i].IsRequired == nil {
			return nil, "", false
		}
	}
	if c.PageInfo.HasNextPage {
		next = c.PageInfo.EndCursor
	}
	return c.Nodes, next, true
}

// newestOf is the required checks, of several runs of one check the newest. A
// run that is queued has not started yet, so the number it was given decides.
func newestOf(all []reported) []check {
	newest := map[string]reported{}
	var order []string
	for _, r := range all {
		if !*r.IsRequired {
			continue
		}
		key := r.key()
		old, there := newest[key]
		if !there {
			order = append(order, key)
		}
		if !there || old.before(r) {
			newest[key] = r
		}
	}
	checks := make([]check, 0, len(order))
	for _, key := range order {
		r := newest[key]
		checks = append(checks, check{cmp.Or(r.Name, r.Context), r.bucket()})
	}
	return checks
}

func (r *reported) key() string {
	if r.Context != "" {
		return "status\x00" + r.Context
	}
	key := "run\x00" + r.Name
	if w := r.CheckSuite.WorkflowRun; w != nil {
		key += "\x00" + w.Workflow.Name + "\x00" + w.Event
	}
	return key
}

func (r *reported) before(other reported) bool {
	if c := cmp.Compare(r.DatabaseID, other.DatabaseID); c != 0 {
		return c < 0
	}
	if c := r.CreatedAt.Compare(other.CreatedAt); c != 0 {
		return c < 0
	}
	return r.StartedAt.Before(other.StartedAt)
}

// bucket is the word that gh has for a state.
func (r *reported) bucket() string {
	state := r.State
	if state == "" {
		if state = r.Status; state == "COMPLETED" {
			state = r.Conclusion
		}
	}
	switch state {
	case "SUCCESS":
		return "pass"
	case "SKIPPED", "NEUTRAL":
		return "skipping"
	case "ERROR", "FAILURE", "CANCELLED", "TIMED_OUT", "ACTION_REQUIRED", "STARTUP_FAILURE":
		return "fail"
	}
	return "pending"
}
