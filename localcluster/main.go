// SPDX-FileCopyrightText: The Ullage Authors
// SPDX-License-Identifier: Apache-2.0

// Command localcluster runs a real Kubernetes on one Linux machine.
//
// It exists so that tests and demonstrations need neither Docker nor a machine
// with a GPU: everything is compiled from Go modules, each node is a kubelet
// and a containerd in a mount namespace of their own. It must never know what
// runs on the cluster, and must leave nothing behind.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

const usage = `localcluster runs a real Kubernetes on this machine, compiled from Go modules.

  up [FLAGS]                     start a cluster (up --help lists the flags)
  down [--keep-logs]             remove it and everything that it left
  status [--json]                what runs, where, and what is wrong
  stop COMPONENT [NODE]          stop one process (--kill: by SIGKILL)
  start COMPONENT [NODE]         start it again and wait until it works
  restart COMPONENT [NODE]       both
  stop|start|restart node NODE   power a node off and on: its pods die with it
  load-image FILE.tar ...        import OCI or Docker archives into every node
  kubeconfig                     print the path of the administrator's kubeconfig
  kubectl [ARGUMENTS]            run kubectl against the cluster
  exec COMMAND [ARGUMENTS]       run a command with KUBECONFIG and kubectl set
  enter NODE COMMAND [ARGUMENTS] run a command in a node's mount namespace
  build [--all] [--tools A,B] [--install-deps]
                                 compile without starting; prints NAME PATH lines

The state is in $LOCALCLUSTER_HOME, by default /var/lib/localcluster for root.
`

func main() {
	os.Exit(report(run(os.Args[1:]), os.Stderr))
}

// report tells why a command failed and returns the exit code.
func report(err error, stderr io.Writer) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(stderr, "localcluster: "+err.Error())
	return 1
}

// run dispatches a command line.
func run(arguments []string) error {
	// A root shell by su or cron may lack the folders of ip and nft.
	if err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin"); err != nil {
		return err
	}
	if len(arguments) == 0 {
		fmt.Print(usage)
		return nil
	}
	home, err := homeFromEnvironment()
	if err != nil {
		return err
	}
	name, rest := arguments[0], arguments[1:]
	switch name {
	case "help", "-h", "--help":
		fmt.Print(usage)
		return nil
	case "hold-namespace": // started by startHolder, not by users
		if len(rest) != 1 {
			return errors.New("hold-namespace is not for users")
		}
		return holdNamespace(rest[0], os.NewFile(3, "ready"))
	case "up":
		options, installDeps, err := parseUp(rest, os.Stderr)
		if err != nil {
			return err
		}
		return up(home, options, installDeps)
	case "down":
		flags := flag.NewFlagSet("down", flag.ContinueOnError)
		keepLogs := flags.Bool("keep-logs", false, "keep the logs folder")
		if err := flags.Parse(rest); err != nil {
			return err
		}
		return down(home, *keepLogs)
	case "build":
		return runBuild(rest)
	case "status":
		return runStatus(home, rest)
	case "stop", "start", "restart":
		return runControl(home, name, rest)
	}
	return runWithCluster(home, name, rest)
}

// runWithCluster runs the commands that need a cluster and change nothing of it.
func runWithCluster(home Home, name string, arguments []string) error {
	actions := map[string]func(*State, []string) error{
		"load-image": func(state *State, archives []string) error {
			if len(archives) == 0 {
				return errors.New("load-image: name an archive")
			}
			for _, archive := range archives {
				if err := state.loadImage(archive); err != nil {
					return err
				}
			}
			return nil
		},
		"kubeconfig": func(state *State, _ []string) error {
			_, err := fmt.Println(state.home.Kubeconfig())
			return err
		},
		"kubectl": func(state *State, words []string) error {
			return state.execute(append([]string{state.home.Path("bin", "kubectl")}, withoutDashes(words)...))
		},
		"exec": func(state *State, words []string) error { return state.execute(withoutDashes(words)) },
		"enter": func(state *State, words []string) error {
			if len(words) < 2 || state.node(words[0]) == nil {
				return fmt.Errorf("enter: name a node (%s) and a command", strings.Join(state.Options.nodeNames(), ", "))
			}
			pid := state.namespacePID(state.node(words[0]))
			if pid == 0 {
				return fmt.Errorf("no process of %s runs", words[0])
			}
			return state.execute(append([]string{"nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", pid), "--"}, withoutDashes(words[1:])...))
		},
	}
	action, found := actions[name]
	if !found {
		return fmt.Errorf("unknown command %q\n\n%s", name, usage)
	}
	state, err := loadCluster(home)
	if err != nil {
		return err
	}
	return action(state, arguments)
}

// loadCluster reads the state of a cluster that has to be there.
func loadCluster(home Home) (*State, error) {
	state, err := loadState(home)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no cluster at %s: run `localcluster up`", home)
	}
	return state, err
}

// withoutDashes drops a leading "--".
func withoutDashes(words []string) []string {
	if len(words) > 0 && words[0] == "--" {
		return words[1:]
	}
	return words
}

// execute replaces this process by a command that sees the cluster.
func (s *State) execute(words []string) error {
	if len(words) == 0 {
		return errors.New("name a command")
	}
	for name, value := range map[string]string{
		"PATH":         s.home.Bin() + ":" + os.Getenv("PATH"),
		"KUBECONFIG":   s.home.Kubeconfig(),
		"KUBECACHEDIR": s.home.Path("kubectl-cache"), // goes with the cluster
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	program, err := exec.LookPath(words[0])
	if err != nil {
		return err
	}
	return syscall.Exec(program, words, os.Environ())
}

// runBuild compiles components and prints where their programs are.
func runBuild(arguments []string) error {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	all := flags.Bool("all", false, "everything, the tools too")
	installDeps := flags.Bool("install-deps", false, "install missing Debian packages")
	tools := flags.String("tools", "", "only these, for example `helm,kubeconform,kwok`")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	names := clusterComponents(maxNodes, 0, "")
	if *all {
		names = nil
		for _, component := range components {
			names = append(names, component.name)
		}
	} else if *tools != "" {
		names = strings.Split(*tools, ",")
	}
	if slices.Contains(names, "runc") {
		if err := requireTools(nodeRequirements(*installDeps), *installDeps); err != nil {
			return err
		}
	}
	programs, err := buildAll(names)
	if err != nil {
		return err
	}
	for _, name := range sortedKeys(programs) {
		fmt.Println(name, programs[name])
	}
	return nil
}

// runStatus prints the status.
func runStatus(home Home, arguments []string) error {
	flags := flag.NewFlagSet("status", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "for programs")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	state, err := loadState(home)
	if errors.Is(err, fs.ErrNotExist) {
		return printStatus(os.Stdout, stoppedStatus(home), *asJSON)
	}
	if err != nil {
		return err
	}
	return printStatus(os.Stdout, state.status(), *asJSON)
}

// runControl stops, starts or restarts one process.
func runControl(home Home, action string, arguments []string) error {
	flags := flag.NewFlagSet(action, flag.ContinueOnError)
	kill := flags.Bool("kill", false, "stop by SIGKILL")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	lock, err := lockHome(home, action, false, lockPatience)
	if err == nil {
		defer lock.Close()
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	state, err := loadCluster(home)
	if err != nil {
		return err
	}
	stop, start, err := state.control(flags.Args(), *kill)
	if err != nil {
		return err
	}
	if action != "start" {
		if err := stop(); err != nil {
			return err
		}
	}
	if action == "stop" {
		return nil
	}
	return start()
}
