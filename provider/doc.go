// Package provider is what every cloud provider needs, so that a new one is its
// cloud calls alone: a type with the methods of the kinds that it serves, and a
// main that hands it to [Main].
//
// The package reads requests (CloudResources of the installation's provider
// name), decides from the object that the API server holds now, claims each by
// a status update under its resourceVersion, refuses what does not belong to
// its subject, calls the cloud, and writes the answer. It keeps the journal of
// credentials in the status, writes Secrets that it cannot read, and ends
// credentials when they are due. docs/cloud/write-a-provider.md tells how to
// write one, docs/cloud/rotation.md what becomes of a credential, and
// docs/cloud/protocol.md is the reference of what both sides write.
//
// A provider runs as one replica (Recreate) under the grant of
// installation/ankka/components/cloud-provider, which knows no leases. Two that
// run at once by accident do no harm: whoever reads older is refused by the
// resourceVersion, and what it made is ended.
package provider
