// Command libgoccl is the shared library: the C ABI of package exports and nothing else.
//
//	go build -buildmode=c-shared -o libgoccl.so ./cabi/libgoccl
package main

import _ "github.com/goccl/goccl/cabi/exports"

func main() {}
