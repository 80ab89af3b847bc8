//go:build !linux

package main

func alone([]string) error { return errNoNamespace }

func inside([]string) error { return errNoNamespace }
