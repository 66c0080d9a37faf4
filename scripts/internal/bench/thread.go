//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// thread posts to a thread that has many entries and to one that has few, in
// turns. Each post is synced before the program ends.
func (b *bench) thread() {
	t := b.one()
	if t == nil {
		return
	}
	many, few := 100_000, 100
	roots := map[int]string{}
	for _, n := range []int{many, few} {
		roots[n] = filepath.Join(t.dir, fmt.Sprintf("thread-%d", n))
		fail(os.MkdirAll(filepath.Join(roots[n], "thread"), 0o700))
		var log bytes.Buffer
		at := time.Now().UnixMilli()
		for i := range n {
			fmt.Fprintf(&log, `{"seq":%d,"at_ms":%d,"author":{"member":"ann","kind":"person"},"text":"entry %d%s","mentions":[],"reply_to":null,"job":"","hops":0,"key":""}`+"\n",
				i+1, at, i+1, strings.Repeat(" and more of it", i%40))
		}
		fail(os.WriteFile(filepath.Join(roots[n], "thread", "log"), log.Bytes(), 0o600))
	}
	argv := map[string][]string{
		"post to the thread, synced":     {"thread", "post", "--member", "ann", "one more"},
		"read the newest 50 entries":     {"thread", "read", "--json"},
		"read the 50 entries after some": {"thread", "read", "--json", "--after", "40"},
	}
	for n := range roots {
		env := append(t.env, "SPACE_JOB_HOME="+roots[n])
		_, err := call(env, t.path, "member", "add", "ann", "--kind", "person")
		fail(err)
		_, err = call(env, append([]string{t.path}, argv["post to the thread, synced"]...)...) // it takes note of what is there
		fail(err)
	}
	for _, what := range []string{"post to the thread, synced", "read the newest 50 entries", "read the 50 entries after some"} {
		took := map[int]sample{}
		for range 41 {
			for _, n := range []int{many, few} {
				d, err := timed(append(t.env, "SPACE_JOB_HOME="+roots[n]), append([]string{t.path}, argv[what]...)...)
				fail(err)
				took[n] = append(took[n], d)
			}
		}
		x := took[many].median().Seconds() / took[few].median().Seconds()
		b.add(row{measure: what + ": 100,000 there, against 100", must: limit{"same", 1.2}, aim: limit{"same", 1.1}, got: x,
			cells: map[string]string{ours: fmt.Sprintf("x%.2f %s", x, short(took[many].median()))}})
	}
}
