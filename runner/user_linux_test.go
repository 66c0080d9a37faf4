package runner

import (
	"os"

	"golang.org/x/sys/unix"
)

func becomeUser(uid int) error {
	if err := unix.Setresgid(uid, uid, uid); err != nil {
		return err
	}
	return unix.Setresuid(uid, uid, uid)
}

// ownKids are this process's, those that have ended and wait to be waited for
// among them: without a look at every process there is, where the kernel lists them.
func ownKids() []int {
	if kids, ok := childrenOf(os.Getpid()); ok {
		return kids
	}
	return childrenByScan()
}
