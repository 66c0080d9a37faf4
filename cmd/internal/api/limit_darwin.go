package api

// totalLimit is ARG_MAX: what the kernel takes as argv and environment of one
// execve.
func totalLimit() int { return 1 << 20 }
