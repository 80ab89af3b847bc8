package rig_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/llm-queue/llmq/local/cloud"
	"github.com/llm-queue/llmq/local/rig"
)

// E5, KT7: the built command line signs for the admin API as on AWS, and the local cloud takes a signature only from who has the secret, and
// names who signed in the audit.
func TestCLI_SignsForTheAdminAPI(t *testing.T) {
	t.Parallel()
	r := theRig(t)
	c := newCLI(t, r)
	as := func(secret string) []string { // no beacon there, so that no key is known
		return []string{
			"XDG_RUNTIME_DIR=" + t.TempDir(), "LLMQ_ADMIN_URL=" + r.AdminURL, "AWS_ACCESS_KEY_ID=" + cloud.Producer, "AWS_SECRET_ACCESS_KEY=" + secret,
			"AWS_REGION=us-east-1", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null",
		}
	}
	set := []string{"settings", "set", "--model", rig.ModelEmbed, "retry_max_secs=28"}
	if out, _ := c.as(as(r.AdminKey), 0, nil, set...); !strings.Contains(out, `"after": "28"`) {
		t.Errorf("signed: %s", out)
	}
	if _, told := c.as(as("another"), 4, nil, set...); !strings.Contains(told, "does not match the signature") {
		t.Errorf("wrong secret: %s", told)
	}
	if out, _ := c.as(as(r.AdminKey), 0, nil, "settings", "audit"); !strings.Contains(out, "user/"+cloud.Producer) {
		t.Errorf("the audit names nobody: %s", out)
	}
	c.as(as(r.AdminKey), 0, nil, "settings", "unset", "--model", rig.ModelEmbed, "retry_max_secs")
}

// A signature is good for the request that was signed, for five minutes.
func TestAdminAPI_SignatureIsOfOneRequest(t *testing.T) {
	t.Parallel()
	r := theRig(t)
	const body = `{"model":"` + rig.ModelEmbed + `"}`
	for _, tt := range []struct {
		name, sent string
		ago        time.Duration
		want       int
	}{
		{"as signed", body, 0, http.StatusOK},
		{"another body", `{"model":"` + rig.ModelChat + `"}`, 0, http.StatusForbidden},
		{"an old date", body, 10 * time.Minute, http.StatusForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			req, err := http.NewRequestWithContext(within(t, 40*time.Second), http.MethodPost, r.AdminURL+"/fallback/test", strings.NewReader(tt.sent))
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = int64(len(body))
			sum := sha256.Sum256([]byte(body))
			who := aws.Credentials{AccessKeyID: cloud.Producer, SecretAccessKey: r.AdminKey}
			if err := v4.NewSigner().SignHTTP(t.Context(), who, req, hex.EncodeToString(sum[:]), "execute-api", "us-east-1", time.Now().Add(-tt.ago)); err != nil {
				t.Fatal(err)
			}
			req.ContentLength = int64(len(tt.sent))
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close() // it is read to its end
			text, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != tt.want {
				t.Errorf("answer = %s %s, %v; want %d", resp.Status, text, err, tt.want)
			}
		})
	}
}
