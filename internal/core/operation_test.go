package core

import "testing"

func TestFailure(t *testing.T) {
	why := Errorf(CodeConflict, "why")
	for _, c := range []struct {
		o    Operation
		want string
	}{
		{Operation{State: StateSucceeded}, ""},
		{Operation{State: StateSucceeded, Error: why}, ""},
		{Operation{State: StateFailed, Error: why}, why.Error()},
		{Operation{State: StateCanceled}, Errorf(CodeInternal, "its deletion ended as Canceled").Error()},
	} {
		got := ""
		if err := c.o.Failure("its deletion"); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s with %v: %q, want %q", c.o.State, c.o.Error, got, c.want)
		}
	}
}
