package postgres

// What a transaction must be alone with, it locks by name (advisory locks, freed
// at its end) before it writes anything. Four things have names:
//
//   - a resource: whoever changes it holds it alone;
//   - the members of a scope, an application, an environment: whoever comes to
//     name one shares it, whoever may remove it because nobody does holds it
//     alone, so that neither sees half of the other;
//   - the children of an operation: who parks and who ends a child;
//   - an output: who claims it.
//
// Locks are taken in that order, and by hash within one statement, so that
// nobody waits in a circle. What remains possible (a member that moves to
// another application) PostgreSQL breaks, and the write is run again.
//
// That they come first has a second reason: PostgreSQL numbers a transaction at
// its first write. Of two that change one resource the one that comes later has
// the higher number, and the feed is in that order.

const (
	ownName      = "0"
	membersName  = "1"
	childrenName = "2"
	claimsName   = "3"
)

// lockTimeout is set in transactions of many writes, from their first lock on: if
// one of the writes has to wait for somebody else, the others shall not. It is
// then made alone, and waits.
const lockTimeout = `(SELECT set_config('lock_timeout', '100ms', true))`

// lockNames takes locks; its parameters are names, and which are held alone.
// lockNamesSoon is the same for many writes.
const (
	lockNames     = `SELECT ` + lockSorted
	lockNamesSoon = `SELECT ` + lockTimeout + `, ` + lockSorted
)

const lockSorted = `CASE WHEN x THEN pg_advisory_xact_lock(h)::text ELSE pg_advisory_xact_lock_shared(h)::text END
	FROM (SELECT left(n, 1) AS c, hashtextextended(n, 0) AS h, bool_or(x) AS x FROM unnest($1::text[], $2::bool[]) u (n, x) GROUP BY 1, 2 ORDER BY 1, 2) s`

// lockOperation takes the resource of an operation.
const lockOperation = `SELECT pg_advisory_xact_lock(hashtextextended('` + ownName + `' || resource_key, 0))::text FROM operations WHERE id = $1`

// lockParking takes the resource of an operation and its children.
const lockParking = `SELECT pg_advisory_xact_lock(hashtextextended('` + ownName + `' || resource_key, 0))::text,
	pg_advisory_xact_lock(hashtextextended('` + childrenName + `' || id, 0))::text FROM operations WHERE id = $1`

// lockFamily takes the resources of an operation and of all live ones below it,
// and the children of all those and of its parent.
const lockFamily = `WITH RECURSIVE f AS (SELECT id, resource_key, parent FROM operations WHERE id = $1
	UNION SELECT c.id, c.resource_key, c.parent FROM operations c JOIN f ON c.parent = f.id WHERE c.ended = 0)
	SELECT pg_advisory_xact_lock(h)::text FROM (SELECT left(n, 1) AS c, hashtextextended(n, 0) AS h FROM (
		SELECT '` + ownName + `' || resource_key AS n FROM f UNION SELECT '` + childrenName + `' || parent FROM f WHERE parent IS NOT NULL) u
		GROUP BY 1, 2 ORDER BY 1, 2) s`

// lockClaims takes outputs by their keys.
const lockClaims = `SELECT pg_advisory_xact_lock(h)::text FROM (SELECT hashtextextended('` + claimsName + `' || k, 0) AS h FROM unnest($1::text[]) AS u (k) GROUP BY 1 ORDER BY 1) s`

// locks are names to take together.
type locks struct {
	names []string
	alone []bool
}

func (l *locks) add(class, name string, alone bool) {
	if name != "" {
		l.names = append(l.names, class+name)
		l.alone = append(l.alone, alone)
	}
}

func (t *tx) lock(l locks) {
	if len(l.names) > 0 {
		t.do(lockNames, l.names, l.alone)
	}
}
