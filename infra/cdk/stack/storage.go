package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/llm-queue/llmq/pkg/llmq"
	"github.com/llm-queue/llmq/pkg/llmq/config"
)

// storage is where bodies lie that are too large for a message or a result.
type storage struct{ bucket awss3.Bucket }

// newStorage makes the data bucket (SECURITY-DESIGN DP1, DP2): unversioned, so that a
// delete deletes, and closed to other accounts.
func newStorage(s awscdk.Stack, env Environment, logs awss3.Bucket) storage {
	scope := constructs.NewConstruct(s, jsii.String("Storage"))
	b := awss3.NewBucket(scope, jsii.String("Data"), &awss3.BucketProps{
		BlockPublicAccess: awss3.BlockPublicAccess_BLOCK_ALL(),
		ObjectOwnership:   awss3.ObjectOwnership_BUCKET_OWNER_ENFORCED,
		Encryption:        awss3.BucketEncryption_S3_MANAGED,
		EnforceSSL:        jsii.Bool(true),
		MinimumTLSVersion: jsii.Number(1.2),
		RemovalPolicy:     env.keeps(),

		ServerAccessLogsBucket: logs, ServerAccessLogsPrefix: jsii.String("data/"),
		LifecycleRules: &[]*awss3.LifecycleRule{
			// A request's body outlives the dead letter that points at it, which has 14 d.
			{Id: jsii.String("requests"), Prefix: jsii.String("off/"), Expiration: days(30)},
			{Id: jsii.String("producers-requests"), Prefix: jsii.String("in/"), Expiration: days(30)},
			{Id: jsii.String("results"), Prefix: jsii.String("res/"), Expiration: days(1)},
			// Replies that the state store did not take (DS37): whoever finds one deletes it.
			{Id: jsii.String("spilled-replies"), Prefix: jsii.String("spill/"), Expiration: days(1)},
			{Id: jsii.String("unfinished-uploads"), AbortIncompleteMultipartUploadAfter: days(1)},
		},
	})
	deny(b, "OnlyThisAccount", "s3:*", map[string]any{
		"StringNotEquals": map[string]any{"aws:PrincipalAccount": s.Account()},
	})
	// Bedrock reads an s3Location in a body with the worker's role, and would hand out
	// another tenant's prompt (EG4).
	deny(b, "NoServiceReadsForItsCaller", "s3:GetObject", map[string]any{
		"Bool": map[string]any{"aws:ViaAWSService": "true"},
	})
	output(scope, "DataBucket", b.BucketName(), "bucket of large bodies")
	return storage{bucket: b}
}

// newAccessLogs makes the bucket where S3 notes who touched the others. Names of objects hold hashes alone, so no log tells a
// tenant or an id (DP2).
func newAccessLogs(s awscdk.Stack, env Environment) awss3.Bucket {
	b := awss3.NewBucket(constructs.NewConstruct(s, jsii.String("AccessLogs")), jsii.String("Bucket"), &awss3.BucketProps{
		BlockPublicAccess: awss3.BlockPublicAccess_BLOCK_ALL(),
		ObjectOwnership:   awss3.ObjectOwnership_BUCKET_OWNER_ENFORCED,
		Encryption:        awss3.BucketEncryption_S3_MANAGED, // S3 delivers to no other
		EnforceSSL:        jsii.Bool(true),
		MinimumTLSVersion: jsii.Number(1.2),
		RemovalPolicy:     env.keeps(),
		LifecycleRules:    &[]*awss3.LifecycleRule{{Id: jsii.String("logs"), Expiration: days(30)}},
	})
	return b
}

func deny(b awss3.Bucket, sid, action string, when map[string]any) {
	b.AddToResourcePolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Sid: jsii.String(sid), Effect: awsiam.Effect_DENY,
		Principals: &[]awsiam.IPrincipal{awsiam.NewAnyPrincipal()},
		Actions:    jsii.Strings(action),
		Resources:  &[]*string{b.BucketArn(), b.ArnForObjects(jsii.String("*"))},
		Conditions: &when,
	}))
}

// requests, results and spills are the ARNs of three prefixes, and incoming those of the
// producers' own (SECURITY-DESIGN MS4).
func (s storage) requests() *string { return s.bucket.ArnForObjects(jsii.String("off/*")) }
func (s storage) results() *string  { return s.bucket.ArnForObjects(jsii.String("res/*")) }
func (s storage) spills() *string   { return s.bucket.ArnForObjects(jsii.String("spill/*")) }

func (s storage) incoming(producers []config.Producer) []*string {
	var arns []*string
	for _, p := range producers {
		arns = append(arns, s.bucket.ArnForObjects(jsii.String("in/"+p.Name+"/*")))
	}
	return arns
}

// of is what lies of a tenant under one of those prefixes.
func (s storage) of(prefix, tenant string) *string {
	return s.bucket.ArnForObjects(jsii.String(prefix + "/" + llmq.TenantHash(tenant) + "/*"))
}

func days(n float64) awscdk.Duration { return awscdk.Duration_Days(jsii.Number(n)) }
