package secrets

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
)

// Manager is AWS Secrets Manager.
type Manager struct{ client *secretsmanager.Client }

var _ Store = (*Manager)(nil)

// NewManager reads through client.
func NewManager(client *secretsmanager.Client) *Manager { return &Manager{client: client} }

// GetSecretValue returns the secret's current text.
func (m *Manager) GetSecretValue(ctx context.Context, arn string) (Secret, error) {
	return m.get(ctx, &secretsmanager.GetSecretValueInput{SecretId: &arn})
}

// GetPreviousValue returns the text that was current before.
func (m *Manager) GetPreviousValue(ctx context.Context, arn string) (Secret, error) {
	return m.get(ctx, &secretsmanager.GetSecretValueInput{SecretId: &arn, VersionStage: aws.String("AWSPREVIOUS")})
}

func (m *Manager) get(ctx context.Context, in *secretsmanager.GetSecretValueInput) (Secret, error) {
	out, err := m.client.GetSecretValue(ctx, in)
	if err != nil {
		_, gone := errors.AsType[*types.ResourceNotFoundException](err)
		_, deleted := errors.AsType[*types.InvalidRequestException](err) // scheduled for deletion
		if gone || deleted {
			return Secret{}, fmt.Errorf("%w: %w", ErrNotFound, err)
		}
		return Secret{}, fmt.Errorf("asking Secrets Manager: %w", err)
	}
	if out.SecretString == nil {
		return Secret{}, errors.New("the secret is binary; store it as plain text")
	}
	return New(*out.SecretString), nil
}
