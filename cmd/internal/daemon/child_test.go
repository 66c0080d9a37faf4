package daemon

import (
	"context"
	"path/filepath"
	"testing"

	"space-job/cmd/internal/api"
	"space-job/cmd/internal/link"
	"space-job/notify"
)

// TestKnockAfter: a waker whose token was revoked lets the parent alone, and any
// other tries again soon.
func TestKnockAfter(t *testing.T) {
	t.Parallel()
	open := func() *api.Actions {
		a, err := api.OpenRoot(filepath.Join(t.TempDir(), "root"))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	parent, joined := open(), open()
	away := false
	joined.Carry(func(ctx context.Context, r link.Request) (link.Answer, error) {
		if away {
			return link.Answer{}, &link.UnreachableError{Err: context.DeadlineExceeded}
		}
		return parent.Answer(ctx, r.Token, r.Call), nil
	})
	if err := joined.SetHTTPPort(-1); err != nil { // so that there is a root
		t.Fatal(err)
	}
	v, err := parent.Invite(api.InviteRequest{Address: "http://127.0.0.1:1"})
	if err == nil {
		_, err = joined.Join(context.Background(), api.JoinRequest{Link: v.Link, Member: "bob"})
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &child{actions: joined}
	away = true
	_, _, err = joined.ArrivalsAbove(context.Background(), "bob", nil)
	if d := c.knockAfter(err, 9); err == nil || d > maxKnock {
		t.Errorf("%v: %v", err, d)
	}
	away = false
	if _, err := parent.Revoke(api.RevokeRequest{Member: "bob"}); err != nil {
		t.Fatal(err)
	}
	_, _, err = joined.ArrivalsAbove(context.Background(), "bob", nil)
	if d := c.knockAfter(err, 1); !api.TokenRefused(err) || d != refused {
		t.Errorf("%v: %v", err, d)
	}
	_, err = joined.JobEndAbove(context.Background(), link.JobEndArgs{Job: "j000000000001"})
	if !api.Refused(err) || !(&refusedEnd{err}).Is(notify.ErrRefused) {
		t.Errorf("%v", err)
	}
}
