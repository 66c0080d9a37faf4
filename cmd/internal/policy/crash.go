package policy

// testOnlyCrash is called at each step that a kill -9 could fall into. Tests set
// it to kill the process there.
var testOnlyCrash func(point string)

func crash(point string) {
	if testOnlyCrash != nil {
		testOnlyCrash(point)
	}
}
