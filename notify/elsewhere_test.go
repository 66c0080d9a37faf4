package notify

import (
	"testing"
	"time"
)

// TestWaitIsOverOnce: what is known of a wait that is over is not written down anew.
func TestWaitIsOverOnce(t *testing.T) {
	t.Parallel()
	root := testRoot(t)
	c, err := ClaimWait(root, Wait{Space: "box", Key: "k", Member: "ann"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	waits := func() []Wait {
		t.Helper()
		all, err := Waits(root, func(line string) { t.Error(line) })
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if got := waits(); len(got) != 0 || !Waiting(root) {
		t.Errorf("while it is being started: %+v", got)
	}
	if err := c.Started("j000000000001"); err != nil {
		t.Fatal(err)
	}
	all := waits()
	if len(all) != 1 || all[0].Job != "j000000000001" || all[0].Member != "ann" {
		t.Fatalf("%+v", all)
	}
	w := all[0]
	if err := w.Note(root, "no route"); err != nil {
		t.Fatal(err)
	}
	if got := waits(); len(got) != 1 || got[0].Error != "no route" {
		t.Errorf("%+v", got)
	}
	for range 2 {
		if err := w.Over(root); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Note(root, ""); err != nil {
		t.Fatal(err)
	}
	if got := waits(); len(got) != 0 || Waiting(root) {
		t.Errorf("after it was over: %+v", got)
	}
}
