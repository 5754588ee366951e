// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"time"
)

// validity is how long the certificates of a cluster hold; a local cluster lives for hours.
const validity = 365 * 24 * time.Hour

// authority is a certificate with its key.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// writePKI makes the cluster's authority, the API server's certificate, its
// client certificate for kubelets and the service account key.
func writePKI(home Home, addresses []net.IP) error {
	if err := os.MkdirAll(home.Secret(), 0o700); err != nil {
		return err
	}
	ca, err := issue(nil, &x509.Certificate{
		Subject:               pkix.Name{CommonName: "localcluster"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}, home, "ca")
	if err != nil {
		return err
	}
	_, err = issue(ca, &x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"},
		DNSNames: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		},
		IPAddresses: addresses,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, home, "apiserver")
	if err != nil {
		return err
	}
	_, err = issue(ca, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, home, "kubelet-client")
	if err != nil {
		return err
	}
	return writeServiceAccountKey(home)
}

// issue creates a key and a certificate signed by parent (by itself without
// one) and writes NAME.crt and NAME.key.
func issue(parent *authority, template *x509.Certificate, home Home, name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(validity)
	signer := &authority{certificate: template, key: key}
	if parent != nil {
		signer = parent
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.certificate, key.Public(), signer.key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	if err := writePEM(home.Secret(name+".crt"), "CERTIFICATE", der); err != nil {
		return nil, err
	}
	return &authority{certificate: certificate, key: key}, writeKey(home.Secret(name+".key"), key)
}

// writeServiceAccountKey makes the key pair that signs and checks service account tokens.
func writeServiceAccountKey(home Home) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := writePEM(home.Secret("service-account.pub"), "PUBLIC KEY", public); err != nil {
		return err
	}
	return writeKey(home.Secret("service-account.key"), key)
}

// writeKey writes a private key.
func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

// writePEM writes one PEM block that only its owner can read.
func writePEM(path, kind string, der []byte) error {
	return writeFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// user is a client of the API server with a token.
type user struct {
	name   string
	groups []string
	file   string // its kubeconfig
}

// writeUsers gives each user a random token and a kubeconfig.
func writeUsers(home Home, server string, users []user) error {
	ca, err := os.ReadFile(home.Secret("ca.crt"))
	if err != nil {
		return err
	}
	var tokens strings.Builder
	for _, user := range users {
		raw := make([]byte, 16)
		if _, err := rand.Read(raw); err != nil {
			return err
		}
		token := hex.EncodeToString(raw)
		fmt.Fprintf(&tokens, "%s,%s,%s,%q\n", token, user.name, user.name, strings.Join(user.groups, ","))
		if err := writeJSON(user.file, kubeconfig(server, base64.StdEncoding.EncodeToString(ca), user.name, token)); err != nil {
			return err
		}
	}
	return writeFile(home.Secret("tokens.csv"), []byte(tokens.String()), 0o600)
}

// kubeconfig is a kubeconfig with one cluster and one user (JSON is valid YAML).
func kubeconfig(server, ca, name, token string) object {
	return object{
		"apiVersion":      "v1",
		"kind":            "Config",
		"clusters":        []object{{"name": "localcluster", "cluster": object{"server": server, "certificate-authority-data": ca}}},
		"users":           []object{{"name": name, "user": object{"token": token}}},
		"contexts":        []object{{"name": "localcluster", "context": object{"cluster": "localcluster", "user": name}}},
		"current-context": "localcluster",
	}
}
