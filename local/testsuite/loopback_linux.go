package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// alone runs a command in a network namespace of its own, in which there is no interface but loopback: what it and its children
// send can't leave the machine. It takes no rights, where the system lets anybody make user namespaces.
func alone(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("own path: %w", err)
	}
	cmd := exec.Command(self, append([]string{verbInside}, args...)...) //nolint:noctx // it is the test binary's own time-out that ends it
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_NET_ADMIN}, // to bring loopback up
		Pdeathsig:   syscall.SIGKILL,
	}
	runtime.LockOSThread() // the child dies with the thread that starts it
	// go test ends a binary that hangs by a signal to this process.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	if err := cmd.Start(); err != nil {
		return errors.Join(errNoNamespace, err)
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // it may have ended
		}
	}()
	return cmd.Wait()
}

// inside brings loopback up and becomes the command.
func inside(args []string) error {
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	if err := onlyLoopback(); err != nil {
		return err
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", path, syscall.Exec(path, args, os.Environ()))
}

func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(s) // nothing was written
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return os.NewSyscallError("ioctl", unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, request))
}

// onlyLoopback makes sure of it: an interface more, and the run would prove nothing.
func onlyLoopback() error {
	interfaces, err := net.Interfaces()
	if err != nil {
		return err
	}
	if len(interfaces) != 1 || interfaces[0].Flags&net.FlagLoopback == 0 {
		return fmt.Errorf("%w: it has %d interfaces", errNoNamespace, len(interfaces))
	}
	return nil
}
