package valkey

import "testing"

func TestWorkOf_RefusesWhatIsNoINFO(t *testing.T) {
	t.Parallel()
	for _, info := range []string{"", "total_net_input_bytes:1\r\n", "total_net_input_bytes:1\r\ntotal_net_output_bytes:2\r\ncmdstat_get:calls=x,usec=1\r\n"} {
		if w, err := workOf(info); err == nil {
			t.Errorf("%q is read as %+v", info, w)
		}
	}
}
