package api

import (
	"time"

	"space-job/jobdir"
	"space-job/notify"
)

// PruneRequest says how long after their end jobs are kept.
type PruneRequest struct {
	OlderThan time.Duration // 0: jobdir.Retention
}

// PruneResult is what was removed.
type PruneResult struct {
	Removed  []jobdir.ID `json:"removed"`
	Recorded []jobdir.ID `json:"recorded_lost"` // kept, counted from now on
	Kept     int         `json:"kept"`
	Swept    int         `json:"swept"` // leftovers of starts and removals that were cut short
	Errors   []string    `json:"errors"`
}

// Prune removes the jobs that ended long enough ago.
func (a *Actions) Prune(req PruneRequest) (PruneResult, error) {
	res := PruneResult{Removed: []jobdir.ID{}, Recorded: []jobdir.ID{}, Errors: []string{}}
	if req.OlderThan < 0 {
		return res, invalid("older_than", req.OlderThan.String(), "is below zero")
	}
	if req.OlderThan == 0 {
		req.OlderThan = jobdir.Retention
	}
	report, err := a.root.Prune(req.OlderThan, a.now(), notify.Keeps(a.root))
	if err != nil {
		return res, fault(err)
	}
	res.Removed = append(res.Removed, report.Removed...)
	res.Recorded = append(res.Recorded, report.Recorded...)
	res.Kept, res.Swept = report.Kept, len(report.Swept)+notify.Sweep(a.root, a.now())
	if n, err := a.questions().Sweep(); err != nil {
		res.Errors = append(res.Errors, err.Error())
	} else {
		res.Swept += n
	}
	if _, err := a.thread().Prune(); err != nil {
		res.Errors = append(res.Errors, err.Error())
	}
	for _, err := range report.Errors {
		res.Errors = append(res.Errors, err.Error())
	}
	return res, nil
}
