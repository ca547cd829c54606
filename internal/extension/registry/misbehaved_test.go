package registry

import "context"
import sdk "github.com/radial-project/radial/extensionsdk"

type misbehaved struct{}

func (misbehaved) Preview(context.Context, sdk.Specification) (sdk.Resource, error) { panic("x") }
func (misbehaved) CreateOrUpdate(context.Context, sdk.Specification) (sdk.Answer, error) {
	panic("x")
}
func (misbehaved) Get(context.Context, sdk.Reference) (sdk.Resource, error)  { panic("x") }
func (misbehaved) Delete(context.Context, sdk.Reference) (sdk.Answer, error) { panic("x") }
