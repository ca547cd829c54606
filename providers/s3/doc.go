// Package s3 is the cloud provider of an installation whose cloud is an object
// store on its own premises (C-153). It serves identity, bucket and
// bucket-credential through two APIs that such stores speak: S3 for buckets, and
// AWS IAM for who may reach them. The other kinds it does not implement.
//
// # What stands for what
//
// An identity is an IAM user without a key. A credential is an IAM user of its
// own below it, with one key and one inline policy: a user may have two keys at
// most, and a rotation that was cut off at the wrong moment needs three. So the
// id of a credential is the user's name, which is known before there is a key,
// and whatever a crash leaves over is found by listing users: a key is never
// made before the policy that confines it.
//
// Everything carries tags that say whose it is, and IAM users a path as well.
// What does not carry exactly these is left alone.
package s3
