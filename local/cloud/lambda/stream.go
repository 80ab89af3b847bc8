package lambda

import (
	"errors"
	"io"
	"time"
)

// maxFreeStream is how much of a streamed reply passes as fast as it can, in bytes.
const maxFreeStream = int64(6) << 20

// pass copies chunk by chunk up to limit bytes and returns how many there were. Wait is called with that number after each
// chunk. A reader that went away does not stop it: the function must be able to finish. The error is the source's.
func pass(dst io.Writer, src io.Reader, limit int64, wait func(int64)) (int64, error) {
	var total int64
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if room := limit - total; n > 0 && room > 0 && dst != nil {
			if _, werr := dst.Write(buf[:min(int64(n), room)]); werr != nil {
				dst = nil
			}
		}
		total += int64(n)
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
		wait(total)
	}
}

// pacer bounds the rate of a stream after its first bytes, by making the reading wait: the function's writes wait too then,
// as on AWS.
type pacer struct {
	free  int64           // bytes that pass at once
	rate  int64           // bytes a second of the others; 0 is no bound
	stop  <-chan struct{} // ends a wait
	began time.Time       // when free was used up
}

// wait returns when total bytes may have passed.
func (p *pacer) wait(total int64) {
	if p.rate == 0 || total <= p.free {
		return
	}
	if p.began.IsZero() {
		p.began = time.Now()
	}
	due := p.began.Add(time.Duration(float64(total-p.free) / float64(p.rate) * float64(time.Second)))
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.stop:
	}
}
