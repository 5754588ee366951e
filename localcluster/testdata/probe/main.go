// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

// Command probe is the only program of the image that the cluster test runs:
// it serves its pod's name, fetches what others serve, and reports what it sees.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "serve":
		serve()
	case len(os.Args) == 3 && os.Args[1] == "get":
		get(os.Args[2])
	case len(os.Args) == 3 && os.Args[1] == "write":
		write(os.Args[2])
	default:
		fail(fmt.Errorf("usage: probe serve | get URL | write FILE"))
	}
}

// serve answers each request with the pod's name and the address of the client.
func serve() {
	fmt.Println("serving")
	fail(http.ListenAndServe(":8080", http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		fmt.Fprintf(writer, "%s sees %s\n", os.Getenv("HOSTNAME"), request.RemoteAddr)
	})))
}

// get prints what a URL gives; it trusts the cluster's authority and sends the pod's token.
func get(url string) {
	pool := x509.NewCertPool()
	if ca, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"); err == nil {
		pool.AppendCertsFromPEM(ca)
	}
	client := &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}},
	}
	response, err := client.Get(url)
	if err != nil {
		fail(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		fail(err)
	}
	fmt.Printf("%d %s", response.StatusCode, body)
}

// write stores the pod's name in a file and waits.
func write(path string) {
	if err := os.WriteFile(path, []byte(os.Getenv("HOSTNAME")), 0o644); err != nil {
		fail(err)
	}
	time.Sleep(24 * time.Hour)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
