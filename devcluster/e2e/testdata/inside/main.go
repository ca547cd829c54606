// Command inside runs in a container on the real node. It is healthy once it has reached the API server from
// there, with the pod's own token, through the Service.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
)

const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

func main() {
	http.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := reachAPI(); err != nil {
			log.Print(err)
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "reached the API server")
	})
	fmt.Println("started")
	log.Fatal(http.ListenAndServe(":8080", nil))
}

func reachAPI() error {
	ca, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		return err
	}
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	host := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	req, err := http.NewRequest(http.MethodGet, "https://"+host+"/version", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+string(token))
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, err := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s (%w)", resp.Status, body, err)
	}
	return nil
}
