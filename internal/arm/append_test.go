package arm

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	wire "github.com/radial-project/radial/api/arm"
)

// TestAppendJSON holds what is written without reflection to json.Marshal, to
// the byte and whatever the texts are.
func TestAppendJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z/"\\<>&\x00-\x7f]*`), rapid.Just(""), rapid.Just("\xff\u2028\u2029"))
		node := wire.GraphResource{ID: text.Draw(t, "id"), Name: text.Draw(t, "name"), Type: text.Draw(t, "type"), ProvisioningState: text.Draw(t, "state")}
		if rapid.Bool().Draw(t, "connections") {
			node.Connections = []wire.GraphConnection{}
		}
		for range rapid.IntRange(0, 3).Draw(t, "connected") {
			node.Connections = append(node.Connections, wire.GraphConnection{
				ID: text.Draw(t, "id"), Direction: text.Draw(t, "direction"), Kind: text.Draw(t, "kind"), Name: text.Draw(t, "name"),
			})
		}
		if rapid.Bool().Draw(t, "outputs") {
			node.OutputResources = []wire.GraphOutput{}
		}
		for range rapid.IntRange(0, 3).Draw(t, "made") {
			node.OutputResources = append(node.OutputResources, wire.GraphOutput{ID: text.Draw(t, "id"), Type: text.Draw(t, "type"), Name: text.Draw(t, "name")})
		}
		want, err := json.Marshal(node)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := appendJSON([]byte("x"), node); err != nil || string(got) != "x"+string(want) {
			t.Errorf("%s (%v), and json.Marshal writes %s", got, err, want)
		}
	})
}
