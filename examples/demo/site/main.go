// Command site is the demo's web site for the real node, where an image must be one static program: it says by which
// variable it knows its Redis and where that is, never how to log in.
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
)

// redis names the variable that the site reads its Redis URL from, and the host in it.
func redis() string {
	for _, name := range []string{"CONNECTION_REDIS_URL", "DB_CONNECTION"} {
		if u, err := url.Parse(os.Getenv(name)); err == nil && u.Host != "" {
			return fmt.Sprintf("Redis by %s at %s", name, u.Host)
		}
	}
	return "no Redis"
}

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "Nothing to do yet. (%s)\n", redis())
	})
	log.Printf("TODO web site on :3000, %s", redis())
	log.Fatal(http.ListenAndServe(":3000", nil))
}
