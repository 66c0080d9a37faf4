//go:build amd64 || arm64

package prefault

import (
	"syscall"
	"unsafe"
)

// Of the auxiliary vector, of a program header, and of madvise.
const (
	atPhdr, atPhnum  = 3, 5
	ptLoad, ptPhdr   = 1, 6
	pfExec           = 1
	madvPopulateRead = 22
)

// programHeader is an Elf64_Phdr.
type programHeader struct {
	kind, flags                                                uint32
	offset, address, physical, sizeInFile, sizeInMemory, align uint64
}

// getAuxv is what the kernel told the program about itself.
//
//go:linkname getAuxv runtime.getAuxv
func getAuxv() []uintptr

func init() { populate() }

func populate() {
	var headers unsafe.Pointer
	var n uintptr
	auxv := getAuxv()
	for i := 0; i+1 < len(auxv); i += 2 {
		switch auxv[i] {
		case atPhdr:
			headers = *(*unsafe.Pointer)(unsafe.Pointer(&auxv[i+1]))
		case atPhnum:
			n = auxv[i+1]
		}
	}
	page := uint64(syscall.Getpagesize())
	var moved uint64 // a position-independent program is not where its headers say
	for _, h := range unsafe.Slice((*programHeader)(headers), n) {
		switch {
		case h.kind == ptPhdr:
			moved = uint64(uintptr(headers)) - h.address
		case h.kind == ptLoad && h.flags&pfExec != 0:
			from := moved + h.address&^(page-1)
			to := moved + h.address + h.sizeInMemory
			// Its failing costs only what it would have spared.
			_, _, _ = syscall.RawSyscall(syscall.SYS_MADVISE, uintptr(from), uintptr(to-from), madvPopulateRead)
		}
	}
}
