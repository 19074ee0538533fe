// A registry of OCI artifacts in memory, on a free port of the loopback interface. Writes its
// address to standard output, and ends when its standard input ends.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	quiet := registry.Logger(log.New(io.Discard, "", 0))
	fail(http.Serve(listener, registry.New(quiet)))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}
