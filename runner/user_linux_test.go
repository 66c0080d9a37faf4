package runner

import "golang.org/x/sys/unix"

func becomeUser(uid int) error {
	if err := unix.Setresgid(uid, uid, uid); err != nil {
		return err
	}
	return unix.Setresuid(uid, uid, uid)
}
