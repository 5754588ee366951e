// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

// Command coredns is CoreDNS with the plugins that a local cluster uses.
//
// It exists because upstream's main links every plugin, among them the clients
// of three clouds. It must never hold DNS logic of its own.
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	coremain.Run()
}
