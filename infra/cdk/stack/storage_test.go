package stack

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBucket_IsClosedEncryptedAndForgets(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, env Environment, tpl template) {
		buckets := tpl.of("AWS::S3::Bucket")
		if len(buckets) != 3 {
			t.Fatalf("%d buckets", len(buckets))
		}
		for id, b := range buckets {
			if logged := target(at(b.Properties, "LoggingConfiguration", "DestinationBucketName")); logged == "" != strings.HasPrefix(id, "AccessLogs") || logged != "" && !strings.HasPrefix(logged, "AccessLogs") {
				t.Errorf("who touches %s is noted in %q", id, logged)
			}
			if want := map[bool]string{true: "Retain", false: "Delete"}[env.production()]; b.DeletionPolicy != want && !strings.HasPrefix(id, "KeysState") {
				t.Errorf("%s: %s", id, b.DeletionPolicy)
			}
			got := map[string]any{
				"public":     b.Properties["PublicAccessBlockConfiguration"],
				"owner":      at(b.Properties, "OwnershipControls", "Rules", 0, "ObjectOwnership"),
				"encryption": at(b.Properties, "BucketEncryption", "ServerSideEncryptionConfiguration", 0, "ServerSideEncryptionByDefault", "SSEAlgorithm"),
				"versions":   b.Properties["VersioningConfiguration"],
				"lifecycle":  at(b.Properties, "LifecycleConfiguration", "Rules"),
			}
			if strings.HasPrefix(id, "KeysState") { // the only place where keys are: every version stays, and so does the bucket
				if diff := cmp.Diff(map[string]any{"Status": "Enabled"}, got["versions"]); diff != "" || b.DeletionPolicy != "Retain" || got["lifecycle"] != nil {
					t.Errorf("%s is kept by %q (versions: -want +got):\n%s", id, b.DeletionPolicy, diff)
				}
				delete(got, "versions")
			}
			want := map[string]any{
				"public":     map[string]any{"BlockPublicAcls": true, "BlockPublicPolicy": true, "IgnorePublicAcls": true, "RestrictPublicBuckets": true},
				"owner":      "BucketOwnerEnforced",
				"encryption": "AES256",
				"versions":   nil,
				"lifecycle": []any{
					map[string]any{"Id": "requests", "Prefix": "off/", "ExpirationInDays": 30.0, "Status": "Enabled"},
					map[string]any{"Id": "producers-requests", "Prefix": "in/", "ExpirationInDays": 30.0, "Status": "Enabled"},
					map[string]any{"Id": "results", "Prefix": "res/", "ExpirationInDays": 1.0, "Status": "Enabled"},
					map[string]any{"Id": "spilled-replies", "Prefix": "spill/", "ExpirationInDays": 1.0, "Status": "Enabled"},
					map[string]any{"Id": "unfinished-uploads", "AbortIncompleteMultipartUpload": map[string]any{"DaysAfterInitiation": 1.0}, "Status": "Enabled"},
				},
			}
			switch {
			case strings.HasPrefix(id, "KeysState"):
				delete(want, "versions")
				want["lifecycle"] = nil
			case strings.HasPrefix(id, "AccessLogs"):
				want["lifecycle"] = []any{map[string]any{"Id": "logs", "ExpirationInDays": 30.0, "Status": "Enabled"}}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", id, diff)
			}
		}
	})
}

// B9: a request's body outlives the message that names it, through its queue and then the dead-letter queue, whose
// copy is a new message.
func TestBucket_RequestsOutliveQueueAndDeadLetters(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, _ Environment, tpl template) {
		var source, dead float64
		for _, q := range tpl.of("AWS::SQS::Queue") {
			keeps := q.Properties["MessageRetentionPeriod"].(float64)
			if strings.HasSuffix(q.Properties["QueueName"].(string), "-dlq") {
				dead = max(dead, keeps)
			} else {
				source = max(source, keeps)
			}
		}
		if source == 0 || dead == 0 {
			t.Fatalf("queues keep for %v s, dead letters for %v s", source, dead)
		}
		for id, b := range tpl.of("AWS::S3::Bucket") {
			for _, rule := range listOf(at(b.Properties, "LifecycleConfiguration", "Rules")) {
				if days, ok := at(rule, "ExpirationInDays").(float64); ok && at(rule, "Prefix") == "off/" && days*24*3600 <= source+dead {
					t.Errorf("%s forgets a request's body after %v days, its message after %v", id, days, (source+dead)/24/3600)
				}
			}
		}
	})
}

// DP1, DP2, EG4: what a service does with our role for its caller, as Bedrock where a body names an s3Location, reads no prompt and no key.
func TestBucket_Denies(t *testing.T) {
	all := []string{
		`s3:* if {"Bool":{"aws:SecureTransport":"false"}}`,
		`s3:* if {"NumericLessThan":{"s3:TlsVersion":1.2}}`,
		`s3:* if {"StringNotEquals":{"aws:PrincipalAccount":{"Ref":"AWS::AccountId"}}}`,
		`s3:GetObject if {"Bool":{"aws:ViaAWSService":"true"}}`,
	}
	want := map[string][]string{"AccessLog": all[:2], "KeysState": all, "StorageDa": all}
	eachEnvironment(t, func(t *testing.T, _ Environment, tpl template) {
		got := map[string][]string{}
		for id, p := range tpl.of("AWS::S3::BucketPolicy") {
			id = id[:len("KeysState")]
			for _, st := range listOf(at(p.Properties, "PolicyDocument", "Statement")) {
				if at(st, "Principal", "Service") == "logging.s3.amazonaws.com" && id == "AccessLog" && at(st, "Action") == "s3:PutObject" && at(st, "Condition", "StringEquals", "aws:SourceAccount") != nil {
					continue // how S3 delivers
				}
				if at(st, "Effect") != "Deny" || at(st, "Principal", "AWS") != "*" {
					t.Errorf("statement %s", text(st))
				}
				got[id] = append(got[id], at(st, "Action").(string)+" if "+text(at(st, "Condition")))
			}
			slices.Sort(got[id])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("denied (-want +got):\n%s", diff)
		}
	})
}
