package until

import "sync"

// poll looks again and again, as often as its ticks come. It gives a hint when
// a look says that something has changed. A waiting process does little else, and
// there may be hundreds of them, so a look that finds nothing must cost next to
// nothing: it happens where the tick arrives, and nobody else is woken for it.
type poll struct {
	hint  chan struct{}
	ticks ticks
	wg    sync.WaitGroup
}

func newPoll(t ticks, look func() (changed bool)) *poll {
	p := &poll{hint: make(chan struct{}, 1), ticks: t}
	p.wg.Go(func() {
		t.each(func() {
			if look() {
				select {
				case p.hint <- struct{}{}:
				default:
				}
			}
		})
	})
	return p
}

// stop returns when no look is under way and none will come.
func (p *poll) stop() {
	p.ticks.close()
	p.wg.Wait()
}

// ticks come at a steady pace.
type ticks interface {
	each(do func()) // until they are closed, which do must not do
	close()
}
