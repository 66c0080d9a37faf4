package jobdir

// Text makes valid UTF-8 of b. An incomplete character at the end is held back
// while more can come; used is how many bytes of b the text stands for.
func Text(b []byte, more bool) (text string, used int) { panic("TODO") }

// Plain is what a terminal would be left with, line by line: escapes are
// dropped, of a line redrawn by carriage returns the last frame stays, a
// backspace takes a character back, other control characters go.
func Plain(b []byte) []byte { panic("TODO") }

// Plainer is Plain for text that comes in pieces. It holds the line under way
// back, as it may yet be redrawn. The zero value is ready.
type Plainer struct{ _ int }

// Next takes a piece and returns the lines that it completed.
func (p *Plainer) Next(b []byte) []byte { panic("TODO") }

// Flush returns the line under way, and starts afresh.
func (p *Plainer) Flush() []byte { panic("TODO") }
