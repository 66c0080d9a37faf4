package jobdir

import (
	"slices"
	"strconv"
	"syscall"
	"time"

	"space-job/jobdir/record"
)

type fsName struct {
	magic   uint32
	name    string
	network bool
}

// fsNames are the file systems that a root is likely to lie on, by the number
// that statfs gives them. A list and no map: a map is built whenever the program
// starts.
var fsNames = [...]fsName{
	{0x0000ef53, "ext4", false},
	{0x58465342, "xfs", false},
	{0x9123683e, "btrfs", false},
	{0x01021994, "tmpfs", false},
	{0x858458f6, "ramfs", false},
	{0x794c7630, "overlay", false},
	{0x2fc12fc1, "zfs", false},
	{0xf2f52010, "f2fs", false},
	{0xca451a4e, "bcachefs", false},
	{0x00004d44, "vfat", false},
	{0x2011bab0, "exfat", false},
	{0x7366746e, "ntfs", false},
	{0x00006969, "nfs", true},
	{0xff534d42, "cifs", true},
	{0xfe534d42, "smb2", true},
	{0x0000517b, "smb", true},
	{0x01021997, "9p", true},
	{0x6a656a63, "virtiofs", true},
	{0x65735546, "fuse", true}, // virtiofs too, on kernels that give it no number of its own
	{0x00c36400, "ceph", true},
	{0x5346414f, "afs", true},
	{0x6b414653, "afs", true},
	{0x0bd00bd0, "lustre", true},
	{0x01161970, "gfs2", true},
	{0x7461636f, "ocfs2", true},
	{0x47504653, "gpfs", true},
	{0x786f4256, "vboxsf", true},
	{0xbacbacbc, "vmhgfs", true},
	{0x013111a8, "ibrix", true},
	{0x73757245, "coda", true},
	{0x0000564c, "ncp", true},
	{0x19830326, "fhgfs", true},
}

func statFS(path string) (FSInfo, error) {
	var st syscall.Statfs_t
	if _, err := record.IgnoringEINTR(func() (int, error) { return 0, syscall.Statfs(path, &st) }); err != nil {
		return FSInfo{}, err
	}
	magic := uint32(st.Type)
	i := slices.IndexFunc(fsNames[:], func(n fsName) bool { return n.magic == magic })
	kind := fsName{name: "0x" + strconv.FormatUint(uint64(magic), 16)}
	if i >= 0 {
		kind = fsNames[i]
	}
	const readOnly = 1 // ST_RDONLY
	return FSInfo{
		Type:        kind.name,
		Network:     kind.network,
		ReadOnly:    st.Flags&readOnly != 0,
		TotalBytes:  st.Blocks * blockSize(&st),
		FreeBytes:   st.Bavail * blockSize(&st),
		TotalInodes: st.Files,
		FreeInodes:  st.Ffree,
	}, nil
}

// blockSize is the unit in which statfs counts: the fragment. Bsize is only what
// is best to read and write at once.
func blockSize(st *syscall.Statfs_t) uint64 {
	if st.Frsize > 0 {
		return uint64(st.Frsize)
	}
	return uint64(st.Bsize)
}

func modTime(st *syscall.Stat_t) time.Time { return time.Unix(st.Mtim.Unix()) }
