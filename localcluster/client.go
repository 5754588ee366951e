// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// object is a piece of JSON that is written or read.
type object = map[string]any

// errNotFound is what the API server answers for something that is not there.
var errNotFound = errors.New("not found")

// client talks to the API server as the administrator.
type client struct {
	http   *http.Client
	server string
	token  string
}

// newClient reads the administrator's kubeconfig.
func newClient(home Home) (*client, error) {
	raw, err := os.ReadFile(home.Kubeconfig())
	if err != nil {
		return nil, err
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
				CA     []byte `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				Token string `json:"token"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", home.Kubeconfig(), err)
	}
	if len(config.Clusters) == 0 || len(config.Users) == 0 {
		return nil, fmt.Errorf("%s names no cluster or no user", home.Kubeconfig())
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(config.Clusters[0].Cluster.CA) {
		return nil, fmt.Errorf("%s holds no certificate authority", home.Kubeconfig())
	}
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		MaxIdleConnsPerHost: 16,
	}
	return &client{
		http:   &http.Client{Transport: transport, Timeout: 10 * time.Second},
		server: config.Clusters[0].Cluster.Server,
		token:  config.Users[0].User.Token,
	}, nil
}

// do sends a request; input and output may be nil.
func (c *client) do(method, path string, input, output any) error {
	body := &bytes.Buffer{}
	if input != nil {
		if err := json.NewEncoder(body).Encode(input); err != nil {
			return err
		}
	}
	request, err := http.NewRequest(method, c.server+path, body)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return err
	case response.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s %s: %w", method, path, errNotFound)
	case response.StatusCode >= http.StatusBadRequest:
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, answer)
	case output == nil:
		return nil
	}
	return json.Unmarshal(answer, output)
}

// serving says whether the API server answers that it is ready.
func (c *client) serving() bool { return c.do(http.MethodGet, "/readyz", nil, nil) == nil }

// readyNodes returns the names of the nodes whose condition Ready is true.
func (c *client) readyNodes() (map[string]bool, error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Status struct {
				Conditions []struct {
					Type   string `json:"type"`
					Status string `json:"status"`
				} `json:"conditions"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := c.do(http.MethodGet, "/api/v1/nodes", nil, &list); err != nil {
		return nil, err
	}
	ready := map[string]bool{}
	for _, item := range list.Items {
		for _, condition := range item.Status.Conditions {
			if condition.Type == "Ready" && condition.Status == "True" {
				ready[item.Metadata.Name] = true
			}
		}
	}
	return ready, nil
}

// httpOK says whether an address answers a plain or unverified request with success.
func httpOK(url string) bool {
	client := &http.Client{
		Timeout: 2 * time.Second,
		// Health endpoints of our own processes with certificates that no one signed.
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
	}
	response, err := client.Get(url)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}
