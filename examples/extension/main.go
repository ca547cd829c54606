// An extension of Radial whose resources are files: a template's File is a file
// in a directory, its Archive a directory packed into one. README.md shows how
// to run it.
package main

import (
	"embed"
	"fmt"
	"os"

	sdk "github.com/radial-project/radial/extensionsdk"
)

// types describe File and Archive, for editors and compilers.
//
//go:embed types
var types embed.FS

func main() {
	if len(os.Args) > 1 && os.Args[1] == "mark" {
		if err := mark(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	base := os.Getenv("FILES_BASE")
	if base == "" {
		fmt.Fprintln(os.Stderr, `set FILES_BASE to the directory below which templates may write, then run
  files --http PORT           to serve HTTP
  files --socket PATH         to serve gRPC, as Radial starts it
  files mark DIRECTORY        makes a directory one that templates may name (no FILES_BASE needed)`)
		os.Exit(2)
	}
	os.Exit(sdk.Main(newFiles(base)))
}

// mark is the command that makes a directory one of the extension's.
func mark(args []string) error {
	if len(args) != 1 && (len(args) != 3 || args[1] != "--passphrase-file") {
		return fmt.Errorf("usage: files mark DIRECTORY [--passphrase-file FILE]")
	}
	passphrase := ""
	if len(args) == 3 {
		raw, err := os.ReadFile(args[2])
		if err != nil {
			return err
		}
		passphrase = string(raw)
	}
	id, err := makeMark(args[0], passphrase)
	if err != nil {
		return err
	}
	fmt.Println(id)
	return nil
}
