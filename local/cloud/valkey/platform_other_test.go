//go:build unix && !linux

package valkey_test

const diesWithParent = false
