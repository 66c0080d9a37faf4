package jobdir

import (
	"os"
	"syscall"
	"time"
)

func statFS(path string) (FSInfo, error) {
	var st syscall.Statfs_t
	if err := ignoringEINTR(func() error { return syscall.Statfs(path, &st) }); err != nil {
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

func (d dir) eachName(f func(name []byte)) error {
	fd, err := syscall.Dup(d.fd)
	if err != nil {
		return err
	}
	syscall.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), d.path)
	defer file.Close()
	names, err := file.Readdirnames(-1)
	for _, name := range names {
		f([]byte(name))
	}
	return err
}

func modTime(st *syscall.Stat_t) time.Time { return time.Unix(st.Mtimespec.Unix()) }
