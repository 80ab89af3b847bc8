//go:build !unix

package sqs

import "time"

// cpuTime is not told here.
func cpuTime() time.Duration { return 0 }
