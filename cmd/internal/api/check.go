package api

import "space-job/jobdir"

// Problem is something wrong with an entry of the jobs directory.
type Problem struct {
	Job  *jobdir.ID `json:"job"`  // null when the entry is no job
	Name string     `json:"name"` // of the entry
	File string     `json:"file"` // in it; "" when it is the entry itself
	What string     `json:"what"`
}

// CheckResult is what is wrong with a root.
type CheckResult struct {
	OK       bool      `json:"ok"`
	Root     string    `json:"root"`
	Jobs     int       `json:"jobs"`
	Problems []Problem `json:"problems"`
}

// Check verifies every job directory, and changes nothing.
func (a *Actions) Check() (CheckResult, error) {
	res := CheckResult{Root: a.root.Path(), Problems: []Problem{}}
	problems, err := a.root.Check()
	if err != nil {
		return res, fault(err)
	}
	ids, err := a.root.IDs()
	if err != nil {
		return res, fault(err)
	}
	for _, p := range problems {
		out := Problem{Name: p.Name, File: p.File, What: p.What}
		if p.ID != "" {
			out.Job = &p.ID
		}
		res.Problems = append(res.Problems, out)
	}
	res.Jobs, res.OK = len(ids), len(problems) == 0
	return res, nil
}
