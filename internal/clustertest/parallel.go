package clustertest

import (
	"flag"
	"strconv"
)

// Parallel lets n of a package's tests run at once, unless -parallel says how
// many. It is for packages whose tests wait for the cluster, for graces and for
// processes more than they compute; TestMain calls it before [Main].
func Parallel(n int) {
	if !flag.Parsed() {
		flag.Parse()
	}
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic("clustertest: " + err.Error()) // only a test binary has the flag
	}
}
