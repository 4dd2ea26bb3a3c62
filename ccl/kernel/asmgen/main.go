// Command asmgen writes the assembly of package kernel for amd64, its declarations in Go and its
// dispatch tables.
//
//	go generate ./ccl/kernel
//
// A loop (loop.go) runs a body (body.go and the files by type) over vectors. The same body serves
// two operands, many (fold) and sums that are scaled. So an operator is written once for each
// width.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	dir := flag.String("dir", ".", "folder of package kernel")
	flag.Parse()
	all, err := files()
	if err == nil {
		for name, text := range all {
			if err = os.WriteFile(filepath.Join(*dir, name), text, 0o644); err != nil {
				break
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "asmgen:", err)
		os.Exit(1)
	}
}
