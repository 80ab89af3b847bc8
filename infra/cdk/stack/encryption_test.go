package stack

import "testing"

// DP1: what holds a prompt or a reply is encrypted and speaks TLS only. Serverless caches know neither plain text nor storage
// without encryption; log groups are encrypted by CloudWatch, with deploy.log_key_arn by a key of the account.
func TestEverything_IsEncryptedAndSpeaksTLSOnly(t *testing.T) {
	eachEnvironment(t, func(t *testing.T, _ Environment, tpl template) {
		tls := map[string]bool{}
		for _, kind := range []string{"AWS::SQS::QueuePolicy", "AWS::S3::BucketPolicy"} {
			for _, p := range tpl.of(kind) {
				for _, st := range listOf(at(p.Properties, "PolicyDocument", "Statement")) {
					if at(st, "Effect") == "Deny" && at(st, "Condition", "Bool", "aws:SecureTransport") == "false" && at(st, "Principal", "AWS") == "*" {
						for _, held := range append(listOf(p.Properties["Queues"]), p.Properties["Bucket"]) {
							tls[target(held)] = true
						}
					}
				}
			}
		}
		for id, q := range tpl.of("AWS::SQS::Queue") {
			if q.Properties["SqsManagedSseEnabled"] != true || !tls[id] {
				t.Errorf("%s: encrypted %v, TLS only %t", id, q.Properties["SqsManagedSseEnabled"], tls[id])
			}
		}
		for id, b := range tpl.of("AWS::S3::Bucket") {
			if at(b.Properties, "BucketEncryption", "ServerSideEncryptionConfiguration", 0) == nil || !tls[id] {
				t.Errorf("%s: encryption %s, TLS only %t", id, text(b.Properties["BucketEncryption"]), tls[id])
			}
		}
		if n := len(tpl.of("AWS::ElastiCache::CacheCluster")) + len(tpl.of("AWS::ElastiCache::ReplicationGroup")); n > 0 {
			t.Errorf("%d caches that could be plain", n)
		}
		for id, c := range tpl.of("AWS::ElastiCache::ServerlessCache") {
			if c.Properties["UserGroupId"] == nil {
				t.Errorf("%s lets in whoever reaches it", id)
			}
		}
		for id, s := range tpl.of("AWS::SNS::Topic") {
			t.Errorf("%s: the topic of these environments needs a look", id)
			_ = s
		}
	})
}
