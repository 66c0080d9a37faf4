package jobdir

import (
	"syscall"
	"time"

	"space-job/jobdir/record"
)

func statFS(path string) (FSInfo, error) {
	var st syscall.Statfs_t
	if _, err := record.IgnoringEINTR(func() (int, error) { return 0, syscall.Statfs(path, &st) }); err != nil {
		return FSInfo{}, err
	}
	var name []byte
	for _, c := range st.Fstypename {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}
	const (
		readOnly = 0x1    // MNT_RDONLY
		local    = 0x1000 // MNT_LOCAL
	)
	return FSInfo{
		Type:        string(name),
		Network:     st.Flags&local == 0,
		ReadOnly:    st.Flags&readOnly != 0,
		TotalBytes:  st.Blocks * uint64(st.Bsize),
		FreeBytes:   st.Bavail * uint64(st.Bsize),
		TotalInodes: st.Files,
		FreeInodes:  st.Ffree,
	}, nil
}

func modTime(st *syscall.Stat_t) time.Time { return time.Unix(st.Mtimespec.Unix()) }
