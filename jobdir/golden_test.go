package jobdir

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"space-job/jobdir/record"
)

var update = flag.Bool("update", false, "write testdata/format/v1/*/WANT.json anew")

// golden is what a case of testdata/format/v1 must be read as.
type golden struct {
	State     State                 `json:"state"`
	Damaged   string                `json:"damaged"`
	Line      string                `json:"line"`
	Cmd       *Cmd                  `json:"cmd"`
	Rewritten json.RawMessage       `json:"cmd_rewritten"`
	Process   *record.ProcessRecord `json:"pid"`
	Timing    *record.TimingRecord  `json:"timing"`
	Exit      *record.ExitRecord    `json:"exit"`
	Dropped   *record.DroppedRecord `json:"dropped"`
	Cancel    *record.CancelRecord  `json:"cancel"`
	LogBytes  int64                 `json:"log_bytes"`
	Log       string                `json:"log"` // around the hole
	Problems  []string              `json:"problems"`
}

// TestGolden reads the job directories of testdata, which stand for what this
// and other versions have written. A case with the file HELD is read while
// pid is locked.
func TestGolden(t *testing.T) {
	t.Parallel()
	cases, err := filepath.Glob("../testdata/format/v1/*/WANT.json")
	if *update {
		cases, err = filepath.Glob("../testdata/format/v1/*/log")
	}
	if err != nil || len(cases) == 0 {
		t.Fatal("no cases", err)
	}
	for _, path := range cases {
		path := filepath.Dir(path)
		t.Run(filepath.Base(path), func(t *testing.T) {
			r := newRoot(t)
			j := r.Job(testID)
			files := map[string]string{}
			entries := must[[]os.DirEntry](t)(os.ReadDir(path))
			held := false
			for _, e := range entries {
				switch e.Name() {
				case "WANT.json":
				case "HELD":
					held = true
				default:
					files[e.Name()] = string(must[[]byte](t)(os.ReadFile(filepath.Join(path, e.Name()))))
				}
			}
			if _, ok := files[record.Cmd]; !ok {
				files[record.Cmd] = missing
			}
			makeJob(t, r, testID, files)
			if held {
				hold(t, j.path(record.Pid))
			}

			info, err := j.Read()
			if err != nil {
				t.Fatal(err)
			}
			got := golden{
				State: info.State, Damaged: info.Damaged, Cmd: info.Cmd, Process: info.Process, Timing: info.Timing,
				Exit: info.Exit, Dropped: info.Dropped, Cancel: info.Cancel, LogBytes: info.LogBytes,
			}
			if info.Cmd != nil {
				got.Line, got.Rewritten = info.Cmd.Line(), info.Cmd.Marshal()
			}
			brief := must[*Info](t)(j.ReadBrief())
			if brief.Process == nil && info.Timing != nil && !info.Timing.StartedAt.IsZero() {
				brief.Process = info.Process
			}
			if !reflect.DeepEqual(brief, info) {
				t.Errorf("in brief %+v, want %+v", brief, info)
			}
			log, _ := join(t, j, 0, 5)
			got.Log = string(log)
			problems, err := r.Check()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range problems {
				got.Problems = append(got.Problems, problemText(p))
			}

			b, err := json.MarshalIndent(got, "", "\t")
			if err != nil {
				t.Fatal(err)
			}
			b = append(b, '\n')
			want := filepath.Join(path, "WANT.json")
			if *update {
				if err := os.WriteFile(want, b, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if w := must[[]byte](t)(os.ReadFile(want)); !bytes.Equal(b, w) {
				t.Errorf("got %s\nwant %s", b, w)
			}
			// Reading changes nothing.
			for name, content := range files {
				if content == missing {
					continue
				}
				if now := must[[]byte](t)(os.ReadFile(j.path(name))); string(now) != content {
					t.Errorf("%s has changed", name)
				}
			}
		})
	}
}
