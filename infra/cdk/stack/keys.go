package stack

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssecretsmanager"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// keyring is where the records of callers' keys and of what operators did lie, and the secret that seals the keys
// (SECURITY-DESIGN KT2, KT3, KT7).
type keyring struct {
	bucket awss3.Bucket
	pepper *string // ARN
}

// newKeyring makes the state bucket: versioned, for it is the only place where keys are, and kept when the stack
// goes. The pepper is made here unless the environment's file names one.
func newKeyring(s awscdk.Stack, env Environment, logs awss3.Bucket) keyring {
	scope := constructs.NewConstruct(s, jsii.String("Keys"))
	b := awss3.NewBucket(scope, jsii.String("State"), &awss3.BucketProps{
		BlockPublicAccess: awss3.BlockPublicAccess_BLOCK_ALL(),
		ObjectOwnership:   awss3.ObjectOwnership_BUCKET_OWNER_ENFORCED,
		Encryption:        awss3.BucketEncryption_S3_MANAGED,
		EnforceSSL:        jsii.Bool(true),
		MinimumTLSVersion: jsii.Number(1.2),
		Versioned:         jsii.Bool(true),

		ServerAccessLogsBucket: logs, ServerAccessLogsPrefix: jsii.String("state/"),
		RemovalPolicy: awscdk.RemovalPolicy_RETAIN,
	})
	deny(b, "OnlyThisAccount", "s3:*", map[string]any{
		"StringNotEquals": map[string]any{"aws:PrincipalAccount": s.Account()},
	})
	deny(b, "NoServiceReadsForItsCaller", "s3:GetObject", map[string]any{ // as of the data bucket
		"Bool": map[string]any{"aws:ViaAWSService": "true"},
	})
	output(scope, "StateBucket", b.BucketName(), "bucket of callers' keys and of what operators did")
	k := keyring{bucket: b, pepper: jsii.String(env.Config.KeyPepper.ARN)}
	if env.Config.KeyPepper.ARN == "" {
		k.pepper = newPepper(scope, env).SecretArn()
	}
	return k
}

// newPepper makes a secret that nobody has seen. A new version of it leaves keys of the one before valid. Without it no key
// can be checked, so it stays when the stack goes.
func newPepper(scope constructs.Construct, env Environment) awssecretsmanager.Secret {
	return awssecretsmanager.NewSecret(scope, jsii.String("Pepper"), &awssecretsmanager.SecretProps{
		Description: jsii.String("seals the keys of llmq " + env.Config.Env + "'s callers"),
		GenerateSecretString: &awssecretsmanager.SecretStringGenerator{
			PasswordLength: jsii.Number(64), ExcludePunctuation: jsii.Bool(true), IncludeSpace: jsii.Bool(false),
		},
		RemovalPolicy: awscdk.RemovalPolicy_RETAIN,
	})
}

// records is the ARN of every key's record.
func (k keyring) records() *string { return k.bucket.ArnForObjects(jsii.String("keys/*")) }

// grantChecks lets a door check keys.
func (k keyring) grantChecks(m member) {
	m.allow("ReadKeys", []string{"s3:GetObject"}, k.records())
	m.allow("ReadKeyPepper", []string{"secretsmanager:GetSecretValue"}, k.pepper)
}

// grantLookups lets a worker see whether a request's key was revoked. It holds no pepper.
func (k keyring) grantLookups(m member) {
	m.allow("ReadKeys", []string{"s3:GetObject"}, k.records())
}

// grantVerbs lets operators make and revoke keys. None is ever deleted.
func (k keyring) grantVerbs(m member) {
	m.allow("ChangeKeys", []string{"s3:GetObject", "s3:PutObject"}, k.records())
	m.allowWhen("ListKeys", []string{"s3:ListBucket"}, &map[string]any{
		"StringLike": map[string]any{"s3:prefix": "keys/*"},
	}, k.bucket.BucketArn())
	m.allow("ReadKeyPepper", []string{"secretsmanager:GetSecretValue"}, k.pepper)
}

// grantTrail lets operators' verbs leave records: new objects alone, and none is read or written again.
func (k keyring) grantTrail(m member) {
	m.allowWhen("RecordVerbs", []string{"s3:PutObject"}, &map[string]any{
		"Null": map[string]any{"s3:if-none-match": "false"},
	}, k.bucket.ArnForObjects(jsii.String("audit/*")))
}
