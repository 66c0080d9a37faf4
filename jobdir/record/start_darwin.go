package record

import "golang.org/x/sys/unix"

// ProcessStart is when a live process started, as ProcessRecord has it. It reports
// false for one that is not there, or has ended and was not waited for.
func ProcessStart(pid int) (start uint64, alive bool) {
	const zombie = 5 // SZOMB
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid || k.Proc.P_stat == zombie {
		return 0, false
	}
	return uint64(k.Proc.P_starttime.Sec)*1e6 + uint64(k.Proc.P_starttime.Usec), true
}
