package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

const (
	maxBucket = 63
	digestLen = 8
	// backupEnding is no end of a service's bucket, whose last eight characters
	// are a digest: 'p' is not hexadecimal (C-77, C-150).
	backupEnding = "-backup"

	// MaxNamePrefix leaves a character each to project and service:
	// 50+1+1+1+1+1+8 = 63.
	MaxNamePrefix = 50
)

// ValidateNamePrefix says whether buckets' names can start so (C-149).
func ValidateNamePrefix(prefix string) error {
	switch {
	case prefix == "":
		return errors.New("a name prefix is needed")
	case len(prefix) > MaxNamePrefix:
		return fmt.Errorf("name prefix %s has %d characters; at most %d leave room for project, service and digest", printable(prefix), len(prefix), MaxNamePrefix)
	case prefix[0] == '-':
		return fmt.Errorf("name prefix %s starts with a hyphen", printable(prefix))
	}
	for i := range len(prefix) {
		c := prefix[i]
		if c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return fmt.Errorf("name prefix %s has a character that is not a-z, 0-9 or a hyphen", printable(prefix))
		}
	}
	return nil
}

// Digest is the first eight hexadecimal characters of SHA-256 over text.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:digestLen]
}

// BucketName is the name of a service's bucket,
// <prefix>-<project>-<service>-<digest>, at most 63 characters: what is too
// much is cut off the service from the right, then off the project, each
// keeping at least one character. The digest is over <project>.<service> and
// never cut: project and service cannot be told apart in the text before it.
//
// Every provider names buckets so, whatever its cloud allows.
func BucketName(prefix, project, service string) (string, error) {
	if err := errors.Join(ValidateNamePrefix(prefix), Subject{project, service}.Validate()); err != nil {
		return "", err
	}
	if service == "" {
		return "", errors.New("a service's bucket needs a service")
	}
	over := len(prefix) + len(project) + len(service) + digestLen + 3 - maxBucket
	whole := project + "." + service
	service, over = cut(service, over)
	project, _ = cut(project, over)
	return prefix + "-" + project + "-" + service + "-" + digest(whole), nil
}

// BackupBucketName is the name of a project's bucket for backups,
// <prefix>-<project>-<digest>-backup, at most 63 characters: what is too much
// is cut off the project from the right, leaving at least one character, and
// then off a prefix of more than 45. The digest is over <project>.
func BackupBucketName(prefix, project string) (string, error) {
	if err := errors.Join(ValidateNamePrefix(prefix), ValidateProject(project)); err != nil {
		return "", err
	}
	over := len(prefix) + len(project) + digestLen + len(backupEnding) + 2 - maxBucket
	short, over := cut(project, over)
	prefix, _ = cut(prefix, over)
	return prefix + "-" + short + "-" + digest(project) + backupEnding, nil
}

// BucketNameFor is the bucket's name for a subject and purpose.
func BucketNameFor(prefix string, s Subject, purpose string) (string, error) {
	switch {
	case purpose == PurposeService && s.Service != "":
		return BucketName(prefix, s.Project, s.Service)
	case purpose == PurposeBackup && s.Service == "":
		return BackupBucketName(prefix, s.Project)
	}
	return "", fmt.Errorf("a bucket for %s is not one of %s", printable(purpose), printable(s.String()))
}

// cut takes up to over characters off the right of s, leaving one, and answers
// how many are still to be taken.
func cut(s string, over int) (string, int) {
	n := min(max(over, 0), len(s)-1)
	return s[:len(s)-n], over - n
}
